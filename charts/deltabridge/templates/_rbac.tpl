{{/*
What the bridge may do, computed from config.watch, the sinks' enrich and, with config.state.log, the Lease and the commands that
reach the leader, and with config.http.ui, reviews of tokens. internal/rbac does the same for `bridge rbac`; a test compares the two. The templates return JSON.
*/}}

{{/* A resource pattern as {resource, version, group}. Takes a string. */}}
{{- define "deltabridge.pattern" -}}
{{- $resource := regexFind "^[^.]*" . }}
{{- $version := "" }}
{{- $group := "" }}
{{- if contains "." . }}
{{- $group = trimPrefix (printf "%s." $resource) . }}
{{- $first := regexFind "^[^.]*" $group }}
{{- if regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" $first }}
{{- $version = $first }}
{{- $group = trimPrefix $first $group | trimPrefix "." }}
{{- end }}
{{- else if regexMatch "[*?\\[]" $resource }}
{{- $group = "*" }}
{{- end }}
{{- dict "resource" $resource "version" $version "group" $group | toJson }}
{{- end }}

{{/* The regular expression of a glob. */}}
{{- define "deltabridge.glob" -}}
{{- printf "^%s$" (. | replace "." "[.]" | replace "*" ".*" | replace "?" ".") }}
{{- end }}

{{/* "true" if a resource is excluded. Takes exclude, group, version, resource. */}}
{{- define "deltabridge.excluded" -}}
{{- $asked := . }}
{{- $excluded := "" }}
{{- range .exclude }}
{{- $p := include "deltabridge.pattern" . | fromJson }}
{{- if and (or (eq $p.version "") (eq $p.version $asked.version)) (regexMatch (include "deltabridge.glob" $p.resource) $asked.resource) (regexMatch (include "deltabridge.glob" $p.group) $asked.group) }}
{{- $excluded = "true" }}
{{- end }}
{{- end }}
{{- $excluded }}
{{- end }}

{{/* "true" if all of a group is excluded. Takes exclude and group. */}}
{{- define "deltabridge.groupExcluded" -}}
{{- $asked := . }}
{{- $excluded := "" }}
{{- range .exclude }}
{{- $p := include "deltabridge.pattern" . | fromJson }}
{{- if and (eq $p.resource "*") (eq $p.version "") (regexMatch (include "deltabridge.glob" $p.group) $asked.group) }}
{{- $excluded = "true" }}
{{- end }}
{{- end }}
{{- $excluded }}
{{- end }}

{{/* The namespaces to grant in, as a list: [""] is the whole cluster. Takes watch[].namespaces. */}}
{{- define "deltabridge.namespaces" -}}
{{- $literal := gt (len (. | default list)) 0 }}
{{- range . }}
{{- if or (eq . "") (regexMatch "^!|[*?\\[]" .) }}
{{- $literal = false }}
{{- end }}
{{- end }}
{{- ternary (. | default list | uniq) (list "") $literal | toJson }}
{{- end }}

{{/*
What one entry of config.watch grants in one scope: {named: {GROUP: [RESOURCE]}, whole: [GROUP]}.
Takes watch, namespace, groups (those of custom resources that "*" reaches).
*/}}
{{- define "deltabridge.grants" -}}
{{- $exclude := .watch.exclude | default list }}
{{- $core := list "configmaps" "endpoints" "events" "limitranges" "persistentvolumeclaims" "pods" "podtemplates" "replicationcontrollers" "resourcequotas" "serviceaccounts" "services" }}
{{- if not .namespace }}
{{- $core = concat $core (list "namespaces" "nodes" "persistentvolumes") }}
{{- end }}
{{- $builtIn := list "admissionregistration.k8s.io" "apiextensions.k8s.io" "apiregistration.k8s.io" "apps" "autoscaling" "batch" "certificates.k8s.io" "coordination.k8s.io" "discovery.k8s.io" "events.k8s.io" "flowcontrol.apiserver.k8s.io" "networking.k8s.io" "node.k8s.io" "policy" "rbac.authorization.k8s.io" "resource.k8s.io" "scheduling.k8s.io" "storage.k8s.io" "storagemigration.k8s.io" }}
{{- $secrets := false }}
{{- range .watch.resources }}
{{- $p := include "deltabridge.pattern" . | fromJson }}
{{- if and (eq $p.resource "secrets") (regexMatch (include "deltabridge.glob" $p.group) "") (not (include "deltabridge.excluded" (dict "exclude" $exclude "group" "" "version" $p.version "resource" "secrets"))) }}
{{- $secrets = true }}
{{- $core = append $core "secrets" }}
{{- end }}
{{- end }}
{{- $granted := list }}{{/* of {group, resource} */}}
{{- $whole := list }}
{{- $groups := .groups }}
{{- range .watch.resources }}
{{- $p := include "deltabridge.pattern" . | fromJson }}
{{- $asked := list }}
{{- if not (regexMatch "[*?\\[]" (print $p.resource $p.group)) }}
{{- if not (include "deltabridge.excluded" (dict "exclude" $exclude "group" $p.group "version" $p.version "resource" $p.resource)) }}
{{- $granted = append $granted $p }}
{{- end }}
{{- else if or (and (ne $p.resource "*") (regexMatch "[*?\\[]" $p.resource)) (and (ne $p.group "*") (regexMatch "[*?\\[]" $p.group)) }}
{{- fail (printf "config.watch: %q: RBAC has no wildcards within a name (list the names, or set rbac.create to false and apply the output of `bridge rbac --discover`)" .) }}
{{- else if ne $p.resource "*" }}
{{- $granted = append $granted $p }}
{{- else if and (eq $p.group "*") $secrets }}
{{- $whole = append $whole "*" }}
{{- else if or (eq $p.group "*") (eq $p.group "") }}
{{- range $core }}
{{- if not (include "deltabridge.excluded" (dict "exclude" $exclude "group" "" "version" "v1" "resource" .)) }}
{{- $granted = append $granted (dict "group" "" "resource" .) }}
{{- end }}
{{- end }}
{{- if eq $p.group "*" }}
{{- $asked = concat $builtIn $groups }}
{{- end }}
{{- else }}
{{- $asked = list $p.group }}
{{- end }}
{{- range $asked }}
{{- if not (include "deltabridge.groupExcluded" (dict "exclude" $exclude "group" .)) }}
{{- $whole = append $whole . }}
{{- end }}
{{- end }}
{{- end }}
{{- $named := dict }}
{{- range $granted }}
{{- $_ := set $named .group (append (get $named .group | default list) .resource) }}
{{- end }}
{{- dict "named" $named "whole" $whole | toJson }}
{{- end }}

{{/*
What is read, including what the sinks' enrich and namespaceSelector require, as a list of entries of config.watch. It is
empty if all sinks are sent audit events.
*/}}
{{- define "deltabridge.watches" -}}
{{- $watches := .Values.config.watch | default (list (dict "resources" (list "*"))) }}
{{- $used := false }}
{{- $needs := dict }}
{{- range .Values.config.sinks }}
{{- $used = or $used (ne (.events | default "changes") "audit") }}
{{- range $need, $wanted := .enrich }}
{{- if and (kindIs "bool" $wanted) $wanted }}
{{- $_ := set $needs $need true }}
{{- end }}
{{- end }}
{{- range .filters }}
{{- if .namespaceSelector }}
{{- $_ := set $needs "namespaceLabels" true }}
{{- end }}
{{- end }}
{{- end }}
{{- $auxiliary := list }}
{{- if or $needs.owner $needs.involvedObject }}
{{- range $watches }}
{{- $resources := list "replicasets.apps" "statefulsets.apps" "daemonsets.apps" "deployments.apps" "jobs.batch" "cronjobs.batch" }}
{{- if $needs.involvedObject }}
{{- $resources = append $resources "pods" }}
{{- if not .namespaces }}
{{- $resources = append $resources "nodes" }}
{{- end }}
{{- end }}
{{- $auxiliary = append $auxiliary (dict "resources" $resources "namespaces" (.namespaces | default list)) }}
{{- end }}
{{- end }}
{{- if $needs.namespaceLabels }}
{{- $auxiliary = append $auxiliary (dict "resources" (list "namespaces")) }}
{{- end }}
{{- ternary (concat $watches $auxiliary) list $used | toJson }}
{{- end }}

{{/* All rules as {NAMESPACE: [RULE]}; "" is the whole cluster. */}}
{{- define "deltabridge.rules" -}}
{{- $watches := include "deltabridge.watches" . | fromJsonArray }}
{{- $scopes := dict "" (dict "named" dict "whole" list) }}
{{- $wildcards := false }}
{{- $foreign := false }}
{{- range $watch := $watches }}
{{- range .resources }}
{{- if regexMatch "[*?\\[]" . }}
{{- $wildcards = true }}
{{- $foreign = true }}
{{- else if contains "." (include "deltabridge.pattern" . | fromJson).group }}
{{- $foreign = true }}
{{- end }}
{{- end }}
{{- range $namespace := include "deltabridge.namespaces" .namespaces | fromJsonArray }}
{{- $new := include "deltabridge.grants" (dict "watch" $watch "namespace" $namespace "groups" ($.Values.rbac.groups | default list)) | fromJson }}
{{- $scope := get $scopes $namespace | default (dict "named" dict "whole" list) }}
{{- $named := $scope.named }}
{{- range $group, $resources := $new.named }}
{{- $_ := set $named $group (concat (get $named $group | default list) $resources) }}
{{- end }}
{{- $_ := set $scopes $namespace (dict "named" $named "whole" (concat $scope.whole $new.whole)) }}
{{- end }}
{{- end }}
{{- $read := list "get" "list" "watch" }}
{{- $all := dict }}
{{- range $namespace, $scope := $scopes }}
{{- $rules := list }}
{{- range $group := keys $scope.named | sortAlpha }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" (get $scope.named $group | uniq | sortAlpha) "verbs" $read) }}
{{- end }}
{{- with $scope.whole | uniq | sortAlpha }}
{{- $groups := ternary (list "*") . (has "*" .) }}
{{- $rules = append $rules (dict "apiGroups" $groups "resources" (list "*") "verbs" (list "list" "watch")) }}
{{- $rules = append $rules (dict "apiGroups" $groups "resources" (list "*") "resourceNames" (list "deltabridge-probe") "verbs" (list "get")) }}
{{- end }}
{{- if not $namespace }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get")) }}
{{- if $wildcards }}
{{- $rules = append $rules (dict "apiGroups" (list "apiextensions.k8s.io") "resources" (list "customresourcedefinitions") "verbs" $read) }}
{{- end }}
{{- if $foreign }}
{{- $rules = append $rules (dict "apiGroups" (list "apiregistration.k8s.io") "resources" (list "apiservices") "verbs" (list "list")) }}
{{- end }}
{{- $http := dig "http" dict (include "deltabridge.config" $ | fromYaml) }}
{{- if or $http.peers $http.ui }}
{{- $rules = append $rules (dict "apiGroups" (list "authentication.k8s.io") "resources" (list "tokenreviews") "verbs" (list "create")) }}
{{- $rules = append $rules (dict "apiGroups" (list "authorization.k8s.io") "resources" (list "subjectaccessreviews") "verbs" (list "create")) }}
{{- end }}
{{- if $http.peers }}
{{- $rules = append $rules (dict "nonResourceURLs" (list "/api/pause" "/api/reload" "/api/resume" "/api/resync") "verbs" (list "post")) }}
{{- end }}
{{- $rules = concat $rules ($.Values.rbac.extraRules | default list) }}
{{- end }}
{{- $_ := set $all $namespace $rules }}
{{- end }}
{{- if include "deltabridge.hasLog" . }}
{{- $lease := (include "deltabridge.config" . | fromYaml).election.lease }}
{{- $rules := get $all $lease.namespace | default list }}
{{- $rules = append $rules (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list $lease.name) "verbs" (list "get" "update" "watch")) }}
{{- $rules = append $rules (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create")) }}
{{- if $.Values.config.audit }}
{{- $rules = append $rules (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list (printf "%s-audit" $lease.name)) "verbs" (list "get" "patch")) }}
{{- end }}
{{- $_ := set $all $lease.namespace $rules }}
{{- end }}
{{- toJson $all }}
{{- end }}

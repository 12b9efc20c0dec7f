{{- define "deltabridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of the objects: at most 52 characters, because the StatefulSet controller adds suffixes for Pods and revisions. */}}
{{- define "deltabridge.fullname" -}}
{{- $name := include "deltabridge.name" . }}
{{- if .Values.fullnameOverride }}
{{- $name = .Values.fullnameOverride }}
{{- else if not (contains $name .Release.Name) }}
{{- $name = printf "%s-%s" .Release.Name $name }}
{{- else }}
{{- $name = .Release.Name }}
{{- end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "deltabridge.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* Name of the roles and bindings. It contains the namespace, because other releases can have roles in the same places. */}}
{{- define "deltabridge.roleName" -}}
{{- printf "%s:%s" (include "deltabridge.namespace" .) (include "deltabridge.fullname" .) }}
{{- end }}

{{- define "deltabridge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "deltabridge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.create is false, so serviceAccount.name is required: the permissions would otherwise be granted to every Pod that uses the namespace's default ServiceAccount" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "deltabridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "deltabridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/*
The metadata of an object. Takes root and, if they differ from the usual, name, namespace ("-": none), labels and
annotations. If a label has several values, that of the selector wins, then labels, then commonLabels.
*/}}
{{- define "deltabridge.metadata" -}}
{{- $chart := dict
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.root.Chart.AppVersion | toString)
  "app.kubernetes.io/part-of" "deltabridge"
  "app.kubernetes.io/managed-by" .root.Release.Service -}}
name: {{ default (include "deltabridge.fullname" .root) .name }}
{{- if ne (toString .namespace) "-" }}
namespace: {{ default (include "deltabridge.namespace" .root) .namespace }}
{{- end }}
labels:
  {{- toYaml (merge (include "deltabridge.selectorLabels" .root | fromYaml) (.labels | default dict) .root.Values.commonLabels $chart) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The image. global.imageRegistry replaces the registry in image.repository. */}}
{{- define "deltabridge.image" -}}
{{- $image := .Values.image }}
{{- $repository := $image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* The port of config.http.listen. */}}
{{- define "deltabridge.port" -}}
{{- dig "http" "listen" ":8080" .Values.config | regexFind "[0-9]+$" }}
{{- end }}

{{/* Fails if the configuration lacks what the chart cannot know. */}}
{{- define "deltabridge.validate" -}}
{{- $missing := list }}
{{- range list "cluster" "sinks" }}
{{- if not (get $.Values.config .) }}
{{- $missing = append $missing (printf "config.%s" .) }}
{{- end }}
{{- end }}
{{- with $missing }}
{{- fail (printf `%s: no value is set, and there is no default. Set the value in a file for --values, for example:

config:
  cluster: prod-eu-1    # unique among the clusters that send to the same brokers
  sinks:
    - name: live
      nats:
        url: nats://nats.nats:4222
        stream: {name: K8S, create: true}
    - name: lake
      kafka:
        brokers: [kafka-0.kafka:9092]
` (join ", " .)) }}
{{- end }}
{{- $read := dict "config.state.path" (dig "state" "path" "" .Values.config) }}
{{- $_ := set $read "config.audit.listen" (dig "audit" "listen" "" .Values.config) }}
{{- range list "watch" "election" "http" "shutdownTimeout" }}
{{- $_ := set $read (print "config." .) (get $.Values.config .) }}
{{- end }}
{{- range .Values.config.sinks }}
{{- $_ := set $read (printf "config.sinks: sink %s: name" .name) .name }}
{{- $_ := set $read (printf "config.sinks: sink %s: enrich" .name) .enrich }}
{{- $_ := set $read (printf "config.sinks: sink %s: nats.embedded" .name) (dig "nats" "embedded" "" .) }}
{{- end }}
{{- range $key, $value := $read }}
{{- if contains "${" (toJson $value) }}
{{- fail (printf "%s contains an environment variable, but the chart creates other objects that depend on this value. Write the value itself" $key) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the state is: an absolute path. */}}
{{- define "deltabridge.statePath" -}}
{{- $path := dig "state" "path" "" .Values.config }}
{{- if not (hasPrefix "/" $path) }}
{{- fail (printf "config.state.path: %q: the volume of the state is mounted there, so the path must be an absolute path" $path) }}
{{- end }}
{{- $path }}
{{- end }}

{{/* Bytes of a quantity: 1Gi, 500M, 1073741824. */}}
{{- define "deltabridge.bytes" -}}
{{- if kindIs "string" . }}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $factor := get $factors (regexFind "[A-Za-z]*$" .) }}
{{- if or (not $factor) (not (regexMatch "^[0-9]+([.][0-9]+)?[A-Za-z]*$" .)) }}
{{- fail (printf "%q is not a valid quantity: write 512Mi or 4Gi, for example" .) }}
{{- end }}
{{- mulf (regexFind "^[0-9.]+" . | float64) $factor | int64 }}
{{- else }}
{{- int64 . }}
{{- end }}
{{- end }}

{{/* Seconds of a duration, rounded up: 30s, 1m30s. */}}
{{- define "deltabridge.seconds" -}}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+(ns|us|µs|μs|ms|s|m|h)" (toString .) -1 }}
{{- $factor := get (dict "h" 3600 "m" 60 "s" 1 "ms" 0.001) (regexFind "[a-z]+$" .) | default 0 }}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) $factor) }}
{{- end }}
{{- ceil $sum | int64 }}
{{- end }}

{{/* The grace period: the bridge delivers for shutdownTimeout, then writes what is left and closes its connections. */}}
{{- define "deltabridge.terminationGracePeriod" -}}
{{- add 15 (include "deltabridge.seconds" (.Values.config.shutdownTimeout | default "30s") | int64) }}
{{- end }}

{{/* What the bridge connects to, as a JSON list: the sinks and, named state.log, the log of the state. */}}
{{- define "deltabridge.destinations" -}}
{{- $all := .Values.config.sinks }}
{{- with dig "state" "log" "" .Values.config }}
{{- $all = append $all (merge (dict "name" "state.log") .) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* The ports of the brokers, of token endpoints and of schema registries, as JSON, except those in environment variables. */}}
{{- define "deltabridge.brokerPorts" -}}
{{- $ports := list }}
{{- range include "deltabridge.destinations" . | fromJsonArray }}
{{- range splitList "," (printf "%s,%s" (dig "nats" "url" "" .) (dig "claimCheck" "nats" "url" "" .)) }}
{{- $default := ternary 443 (ternary 80 4222 (hasPrefix "ws:" (trim .))) (hasPrefix "wss:" (trim .)) }}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" (trimSuffix "/" (trim .))) }}
{{- if or $port (and (trim .) (not (contains "${" .))) }}
{{- $ports = append $ports ($port | default $default | int) }}
{{- end }}
{{- end }}
{{- range dig "kafka" "brokers" list . }}
{{- with regexFind "[0-9]+$" . }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- end }}
{{- range compact (list (dig "kafka" "sasl" "oauth" "tokenUrl" "" .) (dig "kafka" "schemaRegistry" "url" "" .)) }}
{{- $port := regexFind ":[0-9]+$" (regexFind "^[a-z]+://[^/?]+" .) | trimPrefix ":" }}
{{- $ports = append $ports ($port | default (ternary 80 443 (hasPrefix "http:" .)) | int) }}
{{- end }}
{{- end }}
{{- range .Values.networkPolicy.brokerPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{/* The ports of embedded JetStream servers that other Pods can reach, as JSON. */}}
{{- define "deltabridge.embeddedPorts" -}}
{{- $ports := list }}
{{- range .Values.config.sinks }}
{{- $listen := dig "nats" "embedded" "listen" "" . }}
{{- if and $listen (not (include "deltabridge.isLoopback" $listen)) }}
{{- $ports = append $ports (regexFind "[0-9]+$" $listen | int) }}
{{- end }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{/* "true" if a server that listens on this address can only be reached from the Pod itself. */}}
{{- define "deltabridge.isLoopback" -}}
{{- if regexMatch "^(127[.]|localhost:|\\[::1\\])" . }}true{{ end }}
{{- end }}

{{/* The port for audit events; empty if there is none, or if only the Pod itself can reach it. */}}
{{- define "deltabridge.auditPort" -}}
{{- with .Values.config.audit }}
{{- $listen := .listen | default ":8443" }}
{{- if not (include "deltabridge.isLoopback" $listen) }}
{{- regexFind "[0-9]+$" $listen }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of the Service for audit events. API servers expect it, with the namespace and .svc, in the certificate. */}}
{{- define "deltabridge.auditName" -}}
{{- include "deltabridge.fullname" . }}-audit
{{- end }}

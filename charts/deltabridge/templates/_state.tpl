{{/* Where the state is: on a volume (StatefulSet), in config.state.log (Deployment), or both, on the way from one to the other. */}}

{{/* "true" if the bridge writes its state to a log in a broker. */}}
{{- define "deltabridge.hasLog" -}}
{{- if dig "state" "log" "" .Values.config }}true{{ end }}
{{- end }}

{{/*
The configuration of the bridge. By default, the Lease has the name and the namespace of the other objects. Replicas find each
other with the headless Service.
*/}}
{{- define "deltabridge.config" -}}
{{- $config := .Values.config }}
{{- if include "deltabridge.hasLog" . }}
{{- $lease := dict "name" (include "deltabridge.fullname" .) "namespace" (include "deltabridge.namespace" .) }}
{{- $config = merge (deepCopy $config) (dict "election" (dict "lease" $lease)) }}
{{- end }}
{{- if gt (int .Values.replicas) 1 }}
{{- $peer := printf "%s.%s:%s" (include "deltabridge.fullname" .) (include "deltabridge.namespace" .) (include "deltabridge.port" .) }}
{{- $config = merge (deepCopy $config) (dict "http" (dict "peers" (list $peer))) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* The keys that cannot change while the bridge runs (FixedValues in internal/config): if one of them changes, the Pod is replaced. */}}
{{- define "deltabridge.fixedConfig" -}}
{{- $config := include "deltabridge.config" . | fromYaml }}
{{- $fixed := pick $config "cluster" "kubeconfig" "state" "election" "audit" }}
{{- $_ := set $fixed "http" (pick ($config.http | default dict) "listen" "ui") }}
{{- $_ := set $fixed "log" (pick ($config.log | default dict) "format") }}
{{- if include "deltabridge.hasLog" . }}
{{- $audit := list }}
{{- range .Values.config.sinks }}
{{- if eq (.events | default "") "audit" }}
{{- $audit = append $audit . }}
{{- end }}
{{- end }}
{{- if $audit }}
{{- $_ := set $fixed "sinks" $audit }}
{{- end }}
{{- end }}
{{- toYaml $fixed }}
{{- end }}

{{/* "true" if the Pods have a token with which commands reach the leader: a kubeconfig can be for another cluster. */}}
{{- define "deltabridge.hasToken" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.config.kubeconfig) }}true{{ end }}
{{- end }}

{{/* Fails if the replicas and the place of the state do not fit. */}}
{{- define "deltabridge.validateState" -}}
{{- $log := include "deltabridge.hasLog" . }}
{{- $first := "set config.state.log, persistence.enabled: true and replicas: 1, upgrade, and wait until the Pod is ready" }}
{{- if not .Values.persistence.enabled }}
{{- if not $log }}
{{- fail (printf "persistence.enabled is false, so config.state.log is required: the state would be lost with each Pod (set config.state.log or persistence.enabled: true; if the release is installed, first %s)" $first) }}
{{- end }}
{{- else if gt (int .Values.replicas) 1 }}
{{- fail (printf "replicas is %d, but persistence.enabled is true: a volume is for one Pod, and replicas share their state through config.state.log (if the release is not installed yet, set config.state.log and persistence.enabled: false; if it is, first %s; then set persistence.enabled: false and replicas, and upgrade again)" (int .Values.replicas) $first) }}
{{- end }}
{{- if and $log (not .Values.config.redactionKeyFile) }}
{{- fail `config.state.log requires config.redactionKeyFile, because all replicas must have the same key for fingerprints. Create a Secret in the namespace of the release, and mount it:

  kubectl create secret generic deltabridge-redaction --from-literal=key="$(openssl rand -hex 32)"

credentials:
  - name: redaction
    secretName: deltabridge-redaction
config:
  redactionKeyFile: /etc/deltabridge/credentials/redaction/key
` }}
{{- end }}
{{- end }}

{{/*
Fails if an upgrade would remove the only place that has the state, or may be the only one: the volume of a bridge without
a log, or the log of a bridge without a volume. Without a cluster (helm template), there is nothing to compare with.
*/}}
{{- define "deltabridge.validateMove" -}}
{{- $name := include "deltabridge.fullname" . }}
{{- $namespace := include "deltabridge.namespace" . }}
{{- $set := lookup "apps/v1" "StatefulSet" $namespace $name }}
{{- $before := dig "data" "bridge.yaml" "" (lookup "v1" "ConfigMap" $namespace $name) | fromYaml }}
{{- $hadLog := dig "state" "log" "" $before }}
{{- $hasLog := include "deltabridge.hasLog" . }}
{{- if and $set (not .Values.persistence.enabled) (not $hadLog) }}
{{- fail (printf "persistence.enabled: the state is only on the volume of the StatefulSet %s and would be lost. First keep persistence.enabled: true and replicas: 1, set config.state.log, upgrade, and wait until the Pod is ready; then set persistence.enabled: false, and upgrade again" $name) }}
{{- else if and $hadLog (not $set) (not $hasLog) }}
{{- fail "config.state.log: the state is only in the log and would be lost. First keep config.state.log, set persistence.enabled: true and replicas: 1, upgrade, and wait until the Pod is ready; then remove config.state.log, and upgrade again" }}
{{- else if and $set $hadLog (not (and .Values.persistence.enabled $hasLog)) (not (include "deltabridge.isReady" $set)) }}
{{- fail (printf "the Pod of the StatefulSet %s is not ready, so the volume and config.state.log may not have the same state. First wait until `kubectl -n %s rollout status statefulset/%s` succeeds, then upgrade again. (If the Pod has never been ready with config.state.log, go back with helm rollback)" $name $namespace $name) }}
{{- else if and $set $hadLog (not $hasLog) }}
{{- $lease := dig "election" "lease" dict $before }}
{{- $holder := dig "spec" "holderIdentity" "" (lookup "coordination.k8s.io/v1" "Lease" $lease.namespace $lease.name) }}
{{- if and $holder (not (hasPrefix (printf "%s-0-" $name) $holder)) }}
{{- fail (printf "the Lease is held by %s, so the volume may not have the last state. First wait until `kubectl -n %s get lease %s` shows the Pod %s-0, then upgrade again" $holder $lease.namespace $lease.name $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* "true" if the Pod of a StatefulSet is ready and up to date. Takes the StatefulSet. */}}
{{- define "deltabridge.isReady" -}}
{{- $status := .status | default dict }}
{{- if and $status.readyReplicas (eq ($status.observedGeneration | int64) (.metadata.generation | int64)) (eq (toString $status.currentRevision) (toString $status.updateRevision)) }}true{{ end }}
{{- end }}

{{- define "deltabridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of the objects. 52 characters, for the controller adds to the names of Pods and revisions. */}}
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

{{/* Name of the roles and bindings: other releases may have theirs in the same places. */}}
{{- define "deltabridge.roleName" -}}
{{- printf "%s:%s" .Release.Namespace (include "deltabridge.fullname" .) }}
{{- end }}

{{- define "deltabridge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "deltabridge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "deltabridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "deltabridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deltabridge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "deltabridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: deltabridge
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The metadata of an object. Takes root and, if they differ from the usual, name, namespace ("-": none), labels, annotations. */}}
{{- define "deltabridge.metadata" -}}
name: {{ default (include "deltabridge.fullname" .root) .name }}
{{- if ne (toString .namespace) "-" }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- include "deltabridge.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "deltabridge.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* The port of config.http.listen. */}}
{{- define "deltabridge.port" -}}
{{- dig "http" "listen" ":8080" .Values.config | regexFind "[0-9]+$" }}
{{- end }}

{{/* Where the state is: an absolute path. */}}
{{- define "deltabridge.statePath" -}}
{{- $path := dig "state" "path" "" .Values.config }}
{{- if not (hasPrefix "/" $path) }}
{{- fail (printf "config.state.path: %q: the volume is mounted there, so it has to be an absolute path" $path) }}
{{- end }}
{{- $path }}
{{- end }}

{{/* Bytes of a quantity: 1Gi, 500M, 1073741824. */}}
{{- define "deltabridge.bytes" -}}
{{- if kindIs "string" . }}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $factor := get $factors (regexFind "[A-Za-z]*$" .) }}
{{- if or (not $factor) (not (regexMatch "^[0-9]+([.][0-9]+)?[A-Za-z]*$" .)) }}
{{- fail (printf "%q is no quantity that the chart can read: write 512Mi or 4Gi" .) }}
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

{{- define "deltabridge.terminationGracePeriod" -}}
{{- if .Values.terminationGracePeriodSeconds }}
{{- .Values.terminationGracePeriodSeconds | int64 }}
{{- else }}
{{- add 15 (include "deltabridge.seconds" (.Values.config.shutdownTimeout | default "30s") | int64) }}
{{- end }}
{{- end }}

{{/* What tells that a Secret was changed, without its content. Nothing where helm can't ask a cluster. */}}
{{- define "deltabridge.credentialVersions" -}}
{{- range .Values.credentials }}
{{- with (lookup "v1" "Secret" $.Release.Namespace .secretName).metadata }}
{{ .name }} {{ .uid }} {{ .resourceVersion }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the spill of each sink may take on disk, as "NAME BYTES" in lines. */}}
{{- define "deltabridge.spills" -}}
{{- range .Values.config.sinks }}
{{ .name }} {{ include "deltabridge.bytes" (dig "buffer" "spill" "maxBytes" "1Gi" .) }}
{{- end }}
{{- end }}

{{/* The ports of the brokers and of token endpoints, as JSON. */}}
{{- define "deltabridge.brokerPorts" -}}
{{- $ports := list }}
{{- range .Values.config.sinks }}
{{- range splitList "," (printf "%s,%s" (dig "nats" "url" "" .) (dig "claimCheck" "nats" "url" "" .)) }}
{{- $default := ternary 443 (ternary 80 4222 (hasPrefix "ws:" (trim .))) (hasPrefix "wss:" (trim .)) }}
{{- if trim . }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" (trimSuffix "/" (trim .))) | default $default | int) }}
{{- end }}
{{- end }}
{{- range dig "kafka" "brokers" list . }}
{{- $ports = append $ports (regexFind "[0-9]+$" . | int) }}
{{- end }}
{{- with dig "kafka" "sasl" "oauth" "tokenUrl" "" . }}
{{- $port := regexFind ":[0-9]+$" (regexFind "^[a-z]+://[^/?]+" .) | trimPrefix ":" }}
{{- $ports = append $ports ($port | default (ternary 80 443 (hasPrefix "http:" .)) | int) }}
{{- end }}
{{- end }}
{{- range .Values.networkPolicy.brokerPorts }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

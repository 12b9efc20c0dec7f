{{/* What the bridge's Pod and that of `helm test` have in common. */}}

{{- define "deltabridge.podSpec" -}}
{{- /* With a kubeconfig of its own the bridge reads another cluster, or as somebody else. */ -}}
automountServiceAccountToken: {{ not .Values.config.kubeconfig }}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- range $field := list "dnsConfig" "hostAliases" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with get $.Values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "deltabridge.container" -}}
{{- $statePath := include "deltabridge.statePath" . -}}
image: {{ include "deltabridge.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
# What the configuration names by a relative path lies on the volume.
workingDir: {{ $statePath }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $limit := dig "limits" "memory" "" .Values.resources }}
{{- $share := .Values.goMemLimit.percent | int64 }}
env:
  # For commands that are run in the container: kubectl exec ... -- bridge resync
  - name: DELTABRIDGE_CONFIG
    value: /etc/deltabridge/config/bridge.yaml
  {{- if and $limit $share }}
  - name: GOMEMLIMIT
    value: {{ div (mul (include "deltabridge.bytes" $limit | int64) $share) 100 | quote }}
  {{- end }}
  {{- with .Values.goMaxProcs }}
  - name: GOMAXPROCS
    value: {{ . | quote }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/deltabridge/config
    readOnly: true
  {{- range .Values.credentials }}
  - name: credentials-{{ .name }}
    mountPath: /etc/deltabridge/credentials/{{ .name }}
    readOnly: true
  {{- end }}
  - name: state
    mountPath: {{ $statePath }}
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "deltabridge.volumes" -}}
- name: config
  configMap:
    name: {{ include "deltabridge.fullname" . }}
{{- range .Values.credentials }}
- name: credentials-{{ .name }}
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    {{- with .items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

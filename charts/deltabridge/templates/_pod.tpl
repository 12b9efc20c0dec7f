{{/* The Pod of the bridge and the Pod of `helm test` share these parts, so that the test shows what the bridge can do. */}}

{{- define "deltabridge.podLabels" -}}
{{- $own := set (include "deltabridge.selectorLabels" .root | fromYaml) "app.kubernetes.io/component" .component }}
{{- toYaml (merge $own .root.Values.podLabels .root.Values.commonLabels) }}
{{- end }}

{{- define "deltabridge.podSpec" -}}
serviceAccountName: {{ include "deltabridge.serviceAccountName" . }}
{{- /* A kubeconfig contains the credentials. */}}
automountServiceAccountToken: {{ not .Values.config.kubeconfig }}
enableServiceLinks: false
{{- $pullSecrets := .Values.imagePullSecrets }}
{{- range .Values.global.imagePullSecrets }}{{/* other charts accept plain names as well */}}
{{- $pullSecrets = append $pullSecrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $pullSecrets }}
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
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- range $field := list "dnsConfig" "hostAliases" "nodeSelector" "tolerations" "affinity" }}
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
# Relative paths in the configuration are on the volume.
workingDir: {{ $statePath }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* An entry of .Values.env replaces the default of the same name. */}}
{{- $defaults := dict "DELTABRIDGE_CONFIG" "/etc/deltabridge/config/bridge.yaml" "GOMAXPROCS" "1" }}
{{- with dig "limits" "memory" "" .Values.resources }}
{{- $_ := set $defaults "GOMEMLIMIT" (div (mul (include "deltabridge.bytes" . | int64) 9) 10) }}
{{- end }}
{{- range .Values.env }}
{{- $_ := unset $defaults .name }}
{{- end }}
env:
  {{- range $name, $value := $defaults }}
  - name: {{ $name }}
    value: {{ $value | quote }}
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
  {{- if include "deltabridge.hasToken" . }}
  - name: token
    mountPath: /var/run/secrets/deltabridge
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
{{- if include "deltabridge.hasToken" . }}
# With this token, commands in one replica reach the leader. The API server does not accept it.
- name: token
  projected:
    sources:
      - serviceAccountToken:
          audience: deltabridge
          path: token
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The template of the bridge's Pod. A Deployment adds what spreads its Pods. */}}
{{- define "deltabridge.podTemplate" -}}
metadata:
  labels:
    {{- include "deltabridge.podLabels" (dict "root" . "component" "bridge") | nindent 4 }}
  annotations:
    {{- $config := include (ternary "deltabridge.fixedConfig" "deltabridge.config" .Values.reloadConfig) . }}
    {{- $own := dict "kubectl.kubernetes.io/default-container" "bridge" "checksum/config" (sha256sum $config) }}
    {{- toYaml (merge $own .Values.podAnnotations .Values.commonAnnotations) | nindent 4 }}
spec:
  {{- include "deltabridge.podSpec" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ include "deltabridge.terminationGracePeriod" . }}
  {{- if not .Values.persistence.enabled }}
  {{- include "deltabridge.spread" . | nindent 2 }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: bridge
      {{- include "deltabridge.container" . | nindent 6 }}
      args:
        - run
        - --config=/etc/deltabridge/config/bridge.yaml
        - --wait-for-config
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      ports:
        - name: http
          containerPort: {{ include "deltabridge.port" . }}
        {{- range include "deltabridge.embeddedPorts" . | fromJsonArray }}
        - name: nats-{{ . }}
          containerPort: {{ . }}
        {{- end }}
        {{- with include "deltabridge.auditPort" . }}
        - name: audit
          containerPort: {{ . }}
        {{- end }}
      {{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
      {{- with get $.Values $probe }}
      {{ $probe }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "deltabridge.volumes" . | nindent 4 }}
    {{- if not .Values.persistence.enabled }}
    - name: state
      emptyDir:
        sizeLimit: {{ .Values.persistence.size }}
    {{- else if .Values.persistence.existingClaim }}
    - name: state
      persistentVolumeClaim:
        claimName: {{ .Values.persistence.existingClaim }}
    {{- end }}
{{- end }}

{{/* Prefers nodes and zones that have no other replica of the same revision. */}}
{{- define "deltabridge.spread" -}}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "deltabridge.selectorLabels" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

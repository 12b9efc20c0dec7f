{{/*
The alerts, as a YAML list. Each has a section in docs/operations.md. `severity: critical` means that changes do not reach a
broker or are lost, and somebody should be woken; `warning` that they soon may.
*/}}
{{- define "deltabridge.alerts" -}}
{{- $of := .Values.prometheusRule.selector | default (printf "namespace=%q,pod=~%q" .Release.Namespace (printf "%s-[0-9]+" (include "deltabridge.fullname" .))) -}}
- alert: DeltabridgeDown
  expr: absent(deltabridge_build_info{ {{- $of -}} })
  for: 5m
  severity: critical
  summary: The bridge does not run.
  description: Prometheus sees no bridge. Changes wait in the cluster, and are lost when the API server has forgotten them.
- alert: DeltabridgeSinkDisconnected
  expr: deltabridge_sink_connected{ {{- $of -}} } == 0
  for: 5m
  severity: critical
  summary: 'The sink {{`{{ $labels.sink }}`}} is not connected.'
  description: 'Its broker does not take events. They wait in memory, then on disk up to buffer.spill.maxBytes, and then its overflow policy applies.'
- alert: DeltabridgeNothingAcknowledged
  expr: |
    sum by (namespace, pod, sink) (deltabridge_queue_events{ {{- $of -}} }) > 0
    unless sum by (namespace, pod, sink) (increase(deltabridge_events_acknowledged_total{ {{- $of -}} }[10m])) > 0
  for: 10m
  severity: critical
  summary: 'The sink {{`{{ $labels.sink }}`}} delivers nothing.'
  description: '{{`{{ $value }}`}} events wait, and for 10 minutes none was acknowledged.'
- alert: DeltabridgeLag
  expr: |
    histogram_quantile(0.99, sum by (namespace, pod, sink, le) (rate(deltabridge_event_lag_seconds_bucket{ {{- $of -}} }[5m])))
    > {{ .Values.prometheusRule.maxLagSeconds }}
  for: 10m
  severity: warning
  summary: 'The sink {{`{{ $labels.sink }}`}} lags behind.'
  description: 'One event in a hundred reaches the broker only {{`{{ $value | humanizeDuration }}`}} after the bridge has seen the change.'
- alert: DeltabridgeGap
  expr: increase(deltabridge_gap_events_total{ {{- $of -}} }[15m]) > 0
  severity: warning
  summary: 'The stream of {{`{{ $labels.resource }}`}} to {{`{{ $labels.sink }}`}} has a gap.'
  description: A gap event was delivered. States are missing before it; its data says which and why.
- alert: DeltabridgeEventsRefused
  expr: increase(deltabridge_events_refused_total{ {{- $of -}} }[15m]) > 0
  severity: critical
  summary: 'Events of {{`{{ $labels.resource }}`}} are refused by {{`{{ $labels.sink }}`}}.'
  description: 'About {{`{{ $value | humanize }}`}} events in 15 minutes could not be encoded or were rejected; they are not sent again.'
- alert: DeltabridgeDeadLetters
  expr: deltabridge_dead_letters{ {{- $of -}} } > 0
  for: 15m
  severity: warning
  summary: 'Dead letters of {{`{{ $labels.sink }}`}} wait for somebody.'
  description: '{{`{{ $value }}`}} events were rejected and are kept in a file of the bridge; when that is full, further ones are lost.'
- alert: DeltabridgeEventsDropped
  expr: increase(deltabridge_events_dropped_total{ {{- $of -}} }[15m]) > 0
  severity: warning
  summary: 'Events of {{`{{ $labels.resource }}`}} for {{`{{ $labels.sink }}`}} are dropped.'
  description: 'Memory and disk are full and the policy is drop-oldest: about {{`{{ $value | humanize }}`}} events in 15 minutes went.'
{{- $spills := include "deltabridge.spills" . | trim }}
{{- if $spills }}
- alert: DeltabridgeSpillFilling
  expr: |
    {{- range $n, $line := splitList "\n" $spills }}
    {{- $sink := splitList " " $line }}
    {{ if $n }}or {{ end }}deltabridge_spill_bytes{ {{- $of }},sink={{ first $sink | quote -}} } / {{ last $sink }} * 100 > {{ $.Values.prometheusRule.maxSpillPercent }}
    {{- end }}
  for: 5m
  severity: warning
  summary: 'The spill of {{`{{ $labels.sink }}`}} fills up.'
  description: 'It is {{`{{ $value | humanize }}`}} percent full. When it is full the overflow policy of the sink applies; with block the watch waits, and all sinks with it.'
{{- end }}
- alert: DeltabridgeSpillFailing
  expr: increase(deltabridge_spill_errors_total{ {{- $of -}} }[10m]) > 0
  for: 5m
  severity: critical
  summary: 'The spill of {{`{{ $labels.sink }}`}} can not be written.'
  description: Events stay in memory and the watch waits; mostly the disk is full.
- alert: DeltabridgeSpillLost
  expr: increase(deltabridge_spill_lost_events_total{ {{- $of -}} }[1h]) > 0
  severity: critical
  summary: 'Events in the spill of {{`{{ $labels.sink }}`}} are lost.'
  description: 'The file was damaged: about {{`{{ $value | humanize }}`}} events could not be read back.'
- alert: DeltabridgeDestinationUnavailable
  expr: deltabridge_parked_events{ {{- $of -}} } > 0
  for: 2m
  severity: warning
  summary: '{{`{{ $labels.destination }}`}} of {{`{{ $labels.sink }}`}} accepts no events.'
  description: '{{`{{ $value }}`}} events wait for it on disk; the rest of the sink goes on.'
- alert: DeltabridgeParkedLost
  expr: increase(deltabridge_parked_lost_events_total{ {{- $of -}} }[1h]) > 0
  severity: critical
  summary: 'Parked events of {{`{{ $labels.sink }}`}} are lost.'
  description: 'Their file was damaged: they could not be read back.'
- alert: DeltabridgeWatchSilent
  expr: time() - deltabridge_informer_last_contact_timestamp_seconds{ {{- $of -}} } > {{ .Values.prometheusRule.maxSilenceSeconds }}
  for: 1m
  severity: critical
  summary: 'The watch of {{`{{ $labels.resource }}`}} is silent.'
  description: 'The API server has said nothing for {{`{{ $value | humanizeDuration }}`}}, not even bookmarks: changes may go unseen.'
- alert: DeltabridgeNotSynced
  expr: deltabridge_informer_synced{ {{- $of -}} } == 0
  for: 15m
  severity: warning
  summary: '{{`{{ $labels.resource }}`}} is not listed yet.'
  description: 'Its initial list was not handed over in 15 minutes: mostly RBAC forbids it, or a sink takes nothing.'
- alert: DeltabridgeCheckpointFailing
  expr: increase(deltabridge_checkpoint_errors_total{ {{- $of -}} }[10m]) > 0
  for: 5m
  severity: warning
  summary: The checkpoint can not be written.
  description: Events go on. After a restart everything since the last checkpoint is delivered again, and deletions may be missing.
- alert: DeltabridgeCheckpointRefused
  expr: max_over_time(deltabridge_checkpoint_refused_total{ {{- $of -}} }[1h]) > 0 and on (namespace, pod) time() - process_start_time_seconds{ {{- $of -}} } < 3600
  severity: warning
  summary: A checkpoint was set aside.
  description: 'It is damaged, foreign, or of another cluster. The bridge began anew: objects come again, and deletions may be missing.'
{{- end }}

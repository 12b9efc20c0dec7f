{{/* The page of the alerts, of the version that is installed. */}}
{{- define "deltabridge.runbooks" -}}
{{- .Values.prometheusRule.runbookURL | default (printf "https://github.com/deltabridge/deltabridge/blob/v%s/docs/operations.md" .Chart.AppVersion) }}
{{- end }}

{{/*
The alerts, as a YAML list. THRESHOLD is replaced by the value of threshold. Each alert has a section in docs/operations.md.
critical: changes do not reach a broker, or are lost; somebody must act now. warning: this can happen soon, or a gap event
has reported it.
*/}}
{{- define "deltabridge.alerts" -}}
{{- $of := .Values.prometheusRule.selector | default (printf "namespace=%q,pod=~%q" (include "deltabridge.namespace" .) (printf "%s-%s" (include "deltabridge.fullname" .) (ternary "[0-9]+" "[0-9a-z]+-[0-9a-z]{5}" .Values.persistence.enabled))) -}}
- alert: DeltabridgeDown
  {{- if include "deltabridge.hasLog" . }}
  expr: absent(deltabridge_leader{ {{- $of -}} } == 1)
  summary: No replica of the bridge is the leader.
  {{- else }}
  expr: absent(deltabridge_build_info{ {{- $of -}} })
  summary: The bridge is not running.
  {{- end }}
  for: 2m
  severity: critical
  description: Prometheus cannot scrape the bridge{{ if include "deltabridge.hasLog" . }}, or no replica leads{{ end }}. The API server keeps changes for about 75 seconds; after that, intermediate states are lost.
{{- if include "deltabridge.hasLog" . }}
- alert: DeltabridgeStateLogSilent
  expr: |
    time() - deltabridge_state_log_last_commit_timestamp_seconds{ {{- $of -}} } > THRESHOLD
    and on (namespace, pod) deltabridge_leader{ {{- $of -}} } == 1
  threshold: 300
  for: 1m
  severity: critical
  summary: The leader does not write the state log.
  description: 'The last commit was {{`{{ $value | humanizeDuration }}`}} ago. Events are still delivered. If the leader is lost now, a standby continues from that commit, and changes since then that the API server has forgotten are missing.'
{{- if gt (int .Values.replicas) 1 }}
- alert: DeltabridgeNoStandby
  expr: |
    absent(
      deltabridge_state_log_behind_commits{ {{- $of -}} } <= 2
      and on (namespace, pod) deltabridge_leader{ {{- $of -}} } == 0
    )
  for: 10m
  severity: warning
  summary: No standby of the bridge can take over.
  description: If the leader is lost now, nothing is delivered until another replica has started and has read the state log.
{{- end }}
{{- end }}
- alert: DeltabridgeRestarting
  expr: changes(process_start_time_seconds{ {{- $of -}} }[1h]) > THRESHOLD
  threshold: 2
  severity: warning
  summary: The bridge restarts repeatedly.
  description: 'It has restarted {{`{{ $value }}`}} times in the last hour.'
- alert: DeltabridgeReloadRefused
  expr: deltabridge_config_last_reload_successful{ {{- $of -}} } == 0
  for: 5m
  severity: warning
  summary: The bridge refuses its changed configuration.
  description: 'It continues with the earlier one. The log and /api/status have the reason. After a restart, it would not start.'
- alert: DeltabridgeSinkDisconnected
  expr: |
    deltabridge_sink_connected{ {{- $of -}} } == 0
    unless on (namespace, pod, sink) deltabridge_sink_paused{ {{- $of -}} } == 1
  for: 5m
  severity: critical
  summary: 'The sink {{`{{ $labels.sink }}`}} is disconnected.'
  description: 'Its broker does not accept events. They wait in memory, then on disk up to buffer.spill.maxBytes; then the overflow policy applies.'
- alert: DeltabridgeSinkPaused
  expr: deltabridge_sink_paused{ {{- $of -}} } == 1
  for: 1h
  severity: warning
  summary: 'The sink {{`{{ $labels.sink }}`}} is paused.'
  description: 'It was paused with bridge pause more than an hour ago, and receives nothing until bridge resume.'
- alert: DeltabridgeNothingAcknowledged
  {{- /* Not if the sink was disconnected or paused all the time: other alerts report this. */}}
  expr: |
    deltabridge_queue_age_seconds{ {{- $of -}} } > 600
    unless on (namespace, pod, sink) sum by (namespace, pod, sink) (increase(deltabridge_events_acknowledged_total{ {{- $of -}} }[10m])) > 0
    unless on (namespace, pod, sink) max_over_time(deltabridge_sink_connected{ {{- $of -}} }[10m]) == 0
  for: 5m
  severity: critical
  summary: 'The sink {{`{{ $labels.sink }}`}} delivers nothing.'
  description: 'The oldest event has waited for {{`{{ $value | humanizeDuration }}`}}, and the broker has acknowledged none for 10 minutes.'
- alert: DeltabridgeLag
  expr: |
    histogram_quantile(0.99, sum by (namespace, pod, sink, le) (rate(deltabridge_event_lag_seconds_bucket{ {{- $of -}} }[5m])))
    > THRESHOLD
  threshold: 60
  for: 10m
  severity: warning
  summary: 'The sink {{`{{ $labels.sink }}`}} lags behind.'
  description: 'One event in a hundred reaches the broker more than {{`{{ $value | humanizeDuration }}`}} after the bridge has received the change.'
- alert: DeltabridgeGap
  {{- /* Other alerts report the other reasons. A timestamp shows a gap at the first scrape; a counter would begin at 1. */}}
  expr: time() - deltabridge_last_gap_timestamp_seconds{ {{- $of -}},reason!~"damaged|overflow|oversize|refused"} < 900
  severity: warning
  summary: 'The stream of {{`{{ $labels.resource }}`}} to {{`{{ $labels.sink }}`}} has a gap ({{`{{ $labels.reason }}`}}).'
  description: A gap event was delivered. States before it may be missing; its data says which, and why.
- alert: DeltabridgeEventsRefused
  expr: time() - deltabridge_last_gap_timestamp_seconds{ {{- $of -}},reason=~"oversize|refused"} < 900
  severity: critical
  summary: 'Events of {{`{{ $labels.resource }}`}} are rejected by {{`{{ $labels.sink }}`}} ({{`{{ $labels.reason }}`}}).'
  description: 'They could not be encoded, or the broker rejected them permanently, and they are not kept as dead letters. Gap events take their place.'
- alert: DeltabridgeEventsDropped
  {{- /* The second part is for a counter that began above 0: it does not increase. */}}
  expr: |
    increase(deltabridge_events_dropped_total{ {{- $of -}} }[15m]) > 0
    or (deltabridge_events_dropped_total{ {{- $of -}} } > 0 unless deltabridge_events_dropped_total{ {{- $of -}} } offset 15m)
  severity: warning
  summary: 'Events of {{`{{ $labels.resource }}`}} for {{`{{ $labels.sink }}`}} are dropped.'
  description: 'Memory and disk are full, and the overflow policy is drop-oldest.'
- alert: DeltabridgeFilterFailing
  expr: increase(deltabridge_filter_errors_total{ {{- $of -}} }[10m]) > 0
  for: 10m
  severity: warning
  summary: 'A filter of the sink {{`{{ $labels.sink }}`}} fails.'
  description: 'An expression cannot be evaluated for some objects, so their events pass: the sink receives events that it may not be meant to have.'
- alert: DeltabridgeFuse
  expr: deltabridge_fuse_seconds{ {{- $of -}} } < THRESHOLD
  threshold: 1800
  for: 2m
  severity: critical
  summary: 'Events for {{`{{ $labels.sink }}`}} may be lost soon.'
  description: 'If the outage or the pause of the sink lasts, nothing is lost for at least {{`{{ $value | humanizeDuration }}`}}.'
- alert: DeltabridgeSpillFailing
  expr: increase(deltabridge_spill_errors_total{ {{- $of -}} }[10m]) > 0
  for: 5m
  severity: critical
  summary: 'The spill of {{`{{ $labels.sink }}`}} cannot be written.'
  description: Events stay in memory. When memory is full, the overflow policy of the sink applies. Usually the disk is full.
- alert: DeltabridgeSpillLost
  expr: time() - deltabridge_last_gap_timestamp_seconds{ {{- $of -}},reason="damaged"} < 3600
  severity: critical
  summary: 'Events of {{`{{ $labels.resource }}`}} that waited on disk for {{`{{ $labels.sink }}`}} are lost.'
  description: 'A file of spilled or parked events was damaged. Deletions and final states may be missing.'
- alert: DeltabridgeAuditRefused
  expr: sum without (result) (increase(deltabridge_audit_requests_total{ {{- $of -}},result=~"full|failing"}[5m])) > 0
  severity: critical
  summary: Audit events are refused.
  description: 'The audit journal is full, or its disk fails. API servers drop audit events about 80 seconds after the first attempt.'
- alert: DeltabridgeDestinationUnavailable
  expr: deltabridge_parked_events{ {{- $of -}} } > 0
  for: 2m
  severity: warning
  summary: '{{`{{ $labels.destination }}`}} of {{`{{ $labels.sink }}`}} accepts no events.'
  description: '{{`{{ $value }}`}} events wait for it on disk; the other events of the sink are delivered.'
- alert: DeltabridgeWatchSilent
  expr: time() - deltabridge_informer_last_contact_timestamp_seconds{ {{- $of -}} } > THRESHOLD
  threshold: 900
  for: 1m
  severity: critical
  summary: 'The watch of {{`{{ $labels.resource }}`}} is silent.'
  description: 'The API server has sent nothing for {{`{{ $value | humanizeDuration }}`}}, not even bookmarks. Changes may be missed.'
- alert: DeltabridgeNotSynced
  expr: deltabridge_informer_synced{ {{- $of -}} } == 0
  for: 15m
  severity: warning
  summary: 'The initial list of {{`{{ $labels.resource }}`}} is not complete.'
  description: 'It was not delivered to the queues of all sinks. Usually RBAC forbids it, or a sink accepts nothing.'
- alert: DeltabridgeCheckpointFailing
  expr: increase(deltabridge_checkpoint_errors_total{ {{- $of -}} }[10m]) > 0
  for: 5m
  severity: critical
  summary: The checkpoint cannot be written.
  description: Events are still delivered. If the bridge restarts now, deletions since the last checkpoint may be missing.
- alert: DeltabridgeCheckpointRefused
  expr: max_over_time(deltabridge_checkpoint_refused_total{ {{- $of -}} }[1h]) > 0 and on (namespace, pod) time() - process_start_time_seconds{ {{- $of -}} } < 3600
  severity: warning
  summary: The bridge could not use its checkpoint.
  description: 'The checkpoint is damaged, or belongs to another cluster. Objects are sent again, and deletions may be missing.'
{{- end }}

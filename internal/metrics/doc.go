// Package metrics contains the Prometheus metrics that are counted while events pass through the bridge: the metrics of
// every sink, by resource. The metrics that are read during a scrape are in internal/engine (collector.go).
// docs/metrics.md lists both kinds. All values are reset when the process starts, except the times of the last gaps.
package metrics

// Package metrics has the Prometheus metrics that are counted while events pass: those of sinks, by resource. What is
// read at the time of a scrape is in internal/engine (collector.go). docs/metrics.md lists both.
package metrics

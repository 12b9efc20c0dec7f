package replica

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/internal/metrics"
)

var _ prometheus.Collector = (*Copy)(nil)

// Describe implements prometheus.Collector. It describes no metrics, because Collect leaves out what is not known.
func (c *Copy) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Copy) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(metrics.Namespace, "", name), help, nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	leads := 0.
	if c.leads.Load() {
		leads = 1
	}
	gauge("leader", "1 if this replica is the leader, which reads and delivers; 0 if it is a standby.", leads)
	if behind := c.Behind(); behind != unknown {
		gauge(
			"state_log_behind_commits",
			"Commits by which this replica was behind the state log when it last read it; 0 for "+
				"the leader. Absent while the replica has no complete copy of the log, or cannot read it.",
			float64(behind),
		)
	}
	if at := c.committed.Load(); at > 0 {
		gauge(
			"state_log_last_commit_timestamp_seconds",
			"When this replica last wrote a commit to the state log, or read one.",
			float64(time.UnixMilli(at).UnixMilli())/1000,
		)
	}
	detached := 0.
	if c.isDetached() {
		detached = 1
	}
	gauge(
		"state_log_detached",
		"1 if this replica has changes that the state log does not have, because the broker of the log is unavailable or "+
			"was until now; else 0.",
		detached,
	)
}

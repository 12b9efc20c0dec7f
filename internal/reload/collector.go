package reload

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/internal/metrics"
)

// Describe implements prometheus.Collector. The label hash differs from configuration to configuration.
func (r *Reloader) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *Reloader) Collect(ch chan<- prometheus.Metric) {
	c := r.Status()
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(metrics.Namespace, "", name), help, nil, labels)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	successful := 1.
	if c.Error != nil {
		successful = 0
	}
	gauge("config_last_reload_successful", "1 if the configuration file, as it is now, is in use or is about to be; "+
		"0 if it was refused, so that the bridge continues with the earlier configuration.", successful, nil)
	gauge("config_last_reload_success_timestamp_seconds", "Since when the configuration is in use.",
		float64(c.Loaded.UnixMilli())/1000, nil)
	gauge("config_info", "Always 1; the label is the hash of the configuration in use, without the keys in which "+
		"replicas can differ.", 1, prometheus.Labels{"hash": c.Hash})
}

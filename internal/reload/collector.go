package reload

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/internal/metrics"
)

// Describe implements prometheus.Collector.
func (r *Reloader) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, ch) }

// Collect implements prometheus.Collector.
func (r *Reloader) Collect(ch chan<- prometheus.Metric) {
	successful := 1.
	if r.Status().Error != nil {
		successful = 0
	}
	desc := prometheus.NewDesc(prometheus.BuildFQName(metrics.Namespace, "", "config_last_reload_successful"),
		"1 if the configuration file, as it is now, is in use or is about to be; 0 if it was refused, so that the bridge "+
			"continues with the earlier configuration.", nil, nil)
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, successful)
}

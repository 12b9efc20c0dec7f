package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// AuditIntake counts what API servers send. It implements audit.Observer and prometheus.Collector.
type AuditIntake struct {
	journal  func() audit.JournalStatus
	requests *prometheus.CounterVec
	events   prometheus.Counter
	stored   prometheus.Histogram
}

// acceptedRequest is the result of a request that was not refused.
const acceptedRequest = "accepted"

// NewAuditIntake returns an AuditIntake. journal returns the status of the journal.
func NewAuditIntake(journal func() audit.JournalStatus) *AuditIntake {
	a := &AuditIntake{
		journal: journal,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: Namespace, Name: "audit_requests_total",
			Help: "Requests with audit events, by result: accepted, or the reason why the request was refused.",
		}, []string{"result"}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: Namespace, Name: "audit_events_total", Help: "Audit events that were stored in the journal.",
		}),
		stored: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: Namespace, Name: "audit_store_duration_seconds", Buckets: delayBuckets,
			Help: "Time that it took to store the events of a request in the journal.",
		}),
	}
	a.requests.WithLabelValues(acceptedRequest)
	for _, reason := range audit.Reasons() {
		a.requests.WithLabelValues(string(reason))
	}
	return a
}

// Received implements audit.Observer.
func (a *AuditIntake) Received(events int, took time.Duration) {
	a.requests.WithLabelValues(acceptedRequest).Inc()
	a.events.Add(float64(events))
	a.stored.Observe(took.Seconds())
}

// Refused implements audit.Observer.
func (a *AuditIntake) Refused(reason audit.Reason) { a.requests.WithLabelValues(string(reason)).Inc() }

// Describe implements prometheus.Collector.
func (a *AuditIntake) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(a, ch) }

// Collect implements prometheus.Collector.
func (a *AuditIntake) Collect(ch chan<- prometheus.Metric) {
	a.requests.Collect(ch)
	a.events.Collect(ch)
	a.stored.Collect(ch)
	s := a.journal()
	gauge := func(name, help string, value float64) {
		desc := prometheus.NewDesc(Namespace+"_"+name, help, nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	gauge(
		"audit_journal_events",
		"Audit events in the journal that at least one sink has not delivered.",
		float64(s.Last-s.Acked),
	)
	gauge("audit_journal_bytes", "Size of the files of the audit journal.", float64(s.Bytes))
	gauge("audit_journal_max_bytes", "Size of the audit journal at which further events are refused (audit.maxBytes).",
		float64(s.MaxBytes))
}

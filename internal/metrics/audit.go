package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// AuditIntake counts what API servers send. It implements audit.Observer and prometheus.Collector.
type AuditIntake struct {
	journal  func() audit.JournalStatus
	requests *prometheus.CounterVec
	events   prometheus.Counter
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
	}
	a.requests.WithLabelValues(acceptedRequest)
	for _, reason := range audit.Reasons() {
		a.requests.WithLabelValues(string(reason))
	}
	return a
}

// Received implements audit.Observer.
func (a *AuditIntake) Received(events int) {
	a.requests.WithLabelValues(acceptedRequest).Inc()
	a.events.Add(float64(events))
}

// Refused implements audit.Observer.
func (a *AuditIntake) Refused(reason audit.Reason) { a.requests.WithLabelValues(string(reason)).Inc() }

// Describe implements prometheus.Collector.
func (a *AuditIntake) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(a, ch) }

// Collect implements prometheus.Collector.
func (a *AuditIntake) Collect(ch chan<- prometheus.Metric) {
	a.requests.Collect(ch)
	a.events.Collect(ch)
	s := a.journal()
	desc := prometheus.NewDesc(Namespace+"_audit_journal_events",
		"Audit events in the journal that at least one sink has not delivered.", nil, nil)
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(s.Last-s.Acked))
}

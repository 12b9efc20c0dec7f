package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxEventSeries is the number of series of kubernetes_events_total from which new series do not name a namespace, and
	// maxEventReasons the number from which they do not name a reason either.
	maxEventSeries, maxEventReasons = 1000, 1200
	// maxReason is the maximum length of a reason in events.k8s.io. The core group has no maximum.
	maxReason = 128
	// other stands for all namespaces, reasons or types that have no series of their own.
	other = "other"
)

// EventLabels contains the labels of kubernetes_events_total.
type EventLabels struct{ Namespace, Reason, Type string }

// KubernetesEvents counts the occurrences of Kubernetes Events. The number of its series is bounded. It is safe for
// concurrent use.
type KubernetesEvents struct {
	total *prometheus.CounterVec

	mu     sync.Mutex
	series map[EventLabels]bool // the existing series
}

// KubernetesEvents returns the counter of Kubernetes Events. The first call registers it.
func (m *Metrics) KubernetesEvents() *KubernetesEvents {
	m.registerEvents.Do(func() {
		f := factory{m.Registry, nil}
		m.events.series = map[EventLabels]bool{}
		m.events.total = f.counters("kubernetes_events_total", "Occurrences of Kubernetes Events, if "+
			"metrics.kubernetesEvents is true. other stands for the namespaces and reasons that have no series of their own.",
			"event_namespace", "reason", "type")
	})
	return &m.events
}

// Add counts occurrences. If there are too many series for another one with these labels, it uses one that does not
// name the namespace or, if there are too many of these as well, the reason.
func (k *KubernetesEvents) Add(l EventLabels, occurrences int64) {
	if l.Type != "Normal" && l.Type != "Warning" {
		l.Type = other
	}
	if len(l.Reason) > maxReason {
		l.Reason = other
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.series[l] && len(k.series) >= maxEventSeries {
		l.Namespace = other
	}
	if !k.series[l] && len(k.series) >= maxEventReasons {
		l.Reason = other
	}
	k.series[l] = true
	k.total.WithLabelValues(l.Namespace, l.Reason, l.Type).Add(float64(occurrences))
}

package metrics

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespace begins the name of each metric.
const Namespace = "deltabridge"

// Metrics are the counters and gauges of all sinks. Labels are sinks and resources, never objects.
type Metrics struct {
	// Registry has them all.
	Registry *prometheus.Registry

	received, filtered, sent, acknowledged, retried, dropped, merged, oversize, refused, gaps *prometheus.CounterVec
	queuedEvents, queuedBytes                                                                 *prometheus.GaugeVec
	sendSeconds, lagSeconds                                                                   *prometheus.HistogramVec
	filterErrors, suppressed, refusals                                                        *prometheus.CounterVec
	restated, resyncs                                                                         *prometheus.CounterVec

	// started distinguishes events of a previous process, which come from the spill, from those that the gauges count.
	started time.Time
}

// Delays reach from a loopback broker's to an outage's: 0.5 ms to about 2 hours.
var delayBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200} //nolint:gochecknoglobals // constant in all but name

// New makes the metrics of a build, and registers them.
func New(version, commit string) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), started: time.Now()}
	counter := func(name, help string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, []string{"sink", "resource"})
		m.Registry.MustRegister(vec)
		return vec
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}, []string{"sink", "resource"})
		m.Registry.MustRegister(vec)
		return vec
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: delayBuckets}, []string{"sink"})
		m.Registry.MustRegister(vec)
		return vec
	}
	m.received = counter("events_received_total", "Changes that an informer handed to the sink's filter.")
	m.filtered = counter("events_filtered_total", "Changes that the sink's filter kept back.")
	m.sent = counter("events_sent_total", "Attempts to deliver an event to the sink's destination.")
	m.acknowledged = counter("events_acknowledged_total", "Events that the destination acknowledged.")
	m.retried = counter("events_retried_total", "Failed attempts after which the event is tried again.")
	m.dropped = counter("events_dropped_total", "Events that a full queue gave up (overflow: drop-oldest). A gap event stands in their place.")
	m.merged = counter("events_merged_total", "Events that a full queue merged into a later one of the same object (overflow: compact).")
	m.oversize = counter("events_oversize_total", "Events that were larger than the destination accepts, whatever was done about them.")
	m.refused = counter("events_refused_total", "Events in whose place a gap event stands: they could not be encoded, or the destination rejected them.")
	m.gaps = counter("gap_events_total", "Gap events that were delivered: places in the stream where states may be missing.")
	m.restated = counter("events_restated_total", "Objects that a resync re-sent, as they were then: no changes.")
	m.queuedEvents = gauge("queue_events", "Events that wait or are in flight.")
	m.queuedBytes = gauge("queue_bytes", "Bytes of the events that wait or are in flight.")
	m.sendSeconds = histogram("send_duration_seconds", "Time from handing an event to the sink until its acknowledgement.")
	m.lagSeconds = histogram("event_lag_seconds", "Time from seeing a change until its acknowledgement.")
	m.filterErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "filter_errors_total",
		Help: "Evaluations of a filter expression that failed on an object. The event passed.",
	}, []string{"sink"})
	m.suppressed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "events_suppressed_total",
		Help: "Changes of objects that are for the sink which a condition on the change kept back: operations, when, onlyChanges, or the entry of ignoreChanges that took all of it. They are part of events_filtered_total.",
	}, []string{"sink", "resource", "reason"})
	m.refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "refusals_total",
		Help: "Events that the destination rejected, by reason and by what was done: metadata, claimCheck, deadLetter, gap, or lost (a gap event, because the dead letters were full).",
	}, []string{"sink", "reason", "outcome"})
	m.resyncs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "resyncs_total", Help: "Resyncs that were begun, at intervals and on request.",
	}, []string{"sink"})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: Namespace, Name: "build_info", Help: "Always 1; the labels describe the build.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	})
	info.Set(1)
	m.Registry.MustRegister(m.filterErrors, m.suppressed, m.refusals, m.resyncs, info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Sink has the metrics of one sink. It is safe for concurrent use.
type Sink struct {
	all  *Metrics
	sink string
	send prometheus.Observer
	lag  prometheus.Observer
	// FilterErrors counts evaluations of expressions that failed.
	FilterErrors prometheus.Counter
	// Resyncs counts resyncs that were begun.
	Resyncs prometheus.Counter

	mu        sync.RWMutex
	resources map[schema.GroupResource]*Resource
}

// ForSink returns the metrics of one sink. All of their labels that are known exist from then on, at zero.
func (m *Metrics) ForSink(name string) *Sink {
	for _, reason := range []string{event.ReasonOversize, event.ReasonRefused} { // all are there from the start: increase() misses a first step
		for _, outcome := range sinks.Outcomes(reason) {
			m.refusals.WithLabelValues(name, reason, string(outcome))
		}
	}
	return &Sink{
		all: m, sink: name, resources: map[schema.GroupResource]*Resource{},
		send: m.sendSeconds.WithLabelValues(name), lag: m.lagSeconds.WithLabelValues(name),
		FilterErrors: m.filterErrors.WithLabelValues(name), Resyncs: m.resyncs.WithLabelValues(name),
	}
}

// Resource are the metrics of one sink and resource; all of them exist, at zero, from the first use on.
type Resource struct {
	Received, Filtered, Sent, Acknowledged, Retried, Dropped, Merged, Oversize, Rejected, Gaps prometheus.Counter
	Restated                                                                                   prometheus.Counter
	Events, Bytes                                                                              prometheus.Gauge

	// NotSent counts rejected events that are not in the stream in any form. Control events do not count.
	NotSent atomic.Int64
}

// Resource returns the metrics of one resource.
func (s *Sink) Resource(gr schema.GroupResource) *Resource {
	s.mu.RLock()
	c := s.resources[gr]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.resources[gr]; c != nil {
		return c
	}
	name := gr.String()
	c = &Resource{
		Received: s.all.received.WithLabelValues(s.sink, name), Filtered: s.all.filtered.WithLabelValues(s.sink, name),
		Sent: s.all.sent.WithLabelValues(s.sink, name), Acknowledged: s.all.acknowledged.WithLabelValues(s.sink, name),
		Retried: s.all.retried.WithLabelValues(s.sink, name), Dropped: s.all.dropped.WithLabelValues(s.sink, name),
		Merged: s.all.merged.WithLabelValues(s.sink, name), Oversize: s.all.oversize.WithLabelValues(s.sink, name),
		Rejected: s.all.refused.WithLabelValues(s.sink, name), Gaps: s.all.gaps.WithLabelValues(s.sink, name),
		Restated: s.all.restated.WithLabelValues(s.sink, name),
		Events:   s.all.queuedEvents.WithLabelValues(s.sink, name), Bytes: s.all.queuedBytes.WithLabelValues(s.sink, name),
	}
	s.resources[gr] = c
	return c
}

// Suppress counts a change that a condition on the change suppressed.
func (s *Sink) Suppress(gr schema.GroupResource, reason string) {
	s.Suppressed(gr.String(), reason).Inc()
}

// Suppressed returns the counter of a resource and a reason.
func (s *Sink) Suppressed(resource, reason string) prometheus.Counter {
	return s.all.suppressed.WithLabelValues(s.sink, resource, reason)
}

// Of returns the metrics of the resource of a message.
func (s *Sink) Of(m *event.Message) *Resource {
	return s.Resource(m.Resource.GroupResource())
}

// Queue adds a message to those in the queue.
func (c *Resource) Queue(m *event.Message) {
	c.Events.Inc()
	c.Bytes.Add(float64(m.Size()))
}

// Unqueue takes a message out of those in the queue.
func (c *Resource) Unqueue(m *event.Message) {
	c.Events.Dec()
	c.Bytes.Sub(float64(m.Size()))
}

// Hooks returns what counts the reports of the drain.
func (s *Sink) Hooks() sinks.Hooks {
	return sinks.Hooks{
		OnSettled: func(m *event.Message, sent time.Time, latency time.Duration) {
			c := s.Of(m)
			c.Sent.Inc()
			c.Acknowledged.Inc()
			if m.Type == event.Gap {
				c.Gaps.Inc()
			}
			s.done(c, m)
			s.send.Observe(latency.Seconds())
			s.lag.Observe(sent.Sub(m.Time).Seconds())
		},
		OnRetry: func(m *event.Message, err error) {
			c := s.Of(m)
			c.Retried.Inc()
			if !errors.Is(err, sinks.ErrNotAttempted) {
				c.Sent.Inc()
			}
		},
		OnRejected: func(m *event.Message, r sinks.Rejection) {
			c := s.Of(m)
			s.all.refusals.WithLabelValues(s.sink, r.Reason, string(r.Outcome)).Inc()
			if r.Reason == event.ReasonOversize {
				c.Oversize.Inc()
			}
			c.Sent.Inc()
			if r.Outcome.InStream() { // OnSettled is called as well
				return
			}
			c.Rejected.Inc()
			if !m.Type.IsControl() {
				c.NotSent.Add(1)
			}
			s.done(c, m)
		},
	}
}

// done takes a message off the queue's books, if it is in them.
func (s *Sink) done(c *Resource, m *event.Message) {
	if !m.Time.Before(s.all.started) {
		c.Unqueue(m)
	}
}

// Drop counts a message that the overflow policy dropped.
func (s *Sink) Drop(m *event.Message) {
	c := s.Of(m)
	c.Dropped.Inc()
	c.Unqueue(m)
}

// Merge counts a message that the overflow policy merged into a later one.
func (s *Sink) Merge(older *event.Message) {
	c := s.Of(older)
	c.Merged.Inc()
	c.Unqueue(older)
}

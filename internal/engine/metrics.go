package engine

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

const namespace = "deltabridge"

// metrics are what /metrics shows of sinks. Labels are sinks and resources, never objects.
type metrics struct {
	registry *prometheus.Registry

	received, filtered, sent, acknowledged, retried, dropped, merged, oversize, refused, gaps *prometheus.CounterVec
	queuedEvents, queuedBytes                                                                 *prometheus.GaugeVec
	sendSeconds, lagSeconds                                                                   *prometheus.HistogramVec
	filterErrors, suppressed, refusals                                                        *prometheus.CounterVec
	restated, resyncs                                                                         *prometheus.CounterVec

	// started tells events of an earlier life, which come out of the spill, from those that are in the queue's books.
	started time.Time
}

// Delays reach from a loopback broker's to an outage's: 0.5 ms to about 2 hours.
var delayBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200} //nolint:gochecknoglobals // constant in all but name

func newMetrics(build Build) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), started: time.Now()}
	counter := func(name, help string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{"sink", "resource"})
		m.registry.MustRegister(vec)
		return vec
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, []string{"sink", "resource"})
		m.registry.MustRegister(vec)
		return vec
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: delayBuckets}, []string{"sink"})
		m.registry.MustRegister(vec)
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
	m.refused = counter("events_refused_total", "Events in whose place a gap event stands: they could not be encoded, or the destination refused them for good.")
	m.gaps = counter("gap_events_total", "Gap events that were delivered: places in the stream where states may be missing.")
	m.restated = counter("events_restated_total", "Objects that a resync re-sent, as they were then: no changes.")
	m.queuedEvents = gauge("queue_events", "Events that wait or are in flight.")
	m.queuedBytes = gauge("queue_bytes", "Bytes of the events that wait or are in flight.")
	m.sendSeconds = histogram("send_duration_seconds", "Time from handing an event to the sink until its acknowledgement.")
	m.lagSeconds = histogram("event_lag_seconds", "Time from seeing a change until its acknowledgement.")
	m.filterErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "filter_errors_total",
		Help: "Evaluations of a filter expression that failed on an object. The event passed.",
	}, []string{"sink"})
	m.suppressed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "events_suppressed_total",
		Help: "Changes of objects that are for the sink which a condition on the change kept back: operations, when, onlyChanges, or the entry of ignoreChanges that took all of it. They are part of events_filtered_total.",
	}, []string{"sink", "resource", "reason"})
	m.refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "refusals_total",
		Help: "Events that the destination refused for good, by reason and by what was done: metadata, claimCheck, deadLetter, gap, or lost (a gap event, because the dead letters were full).",
	}, []string{"sink", "reason", "outcome"})
	m.resyncs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "resyncs_total", Help: "Resyncs that were begun, at intervals and on request.",
	}, []string{"sink"})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; the labels describe the build.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit},
	})
	info.Set(1)
	m.registry.MustRegister(m.filterErrors, m.suppressed, m.refusals, m.resyncs, info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// sinkMetrics are the metrics of one sink. It is safe for concurrent use.
type sinkMetrics struct {
	all  *metrics
	sink string
	send prometheus.Observer
	lag  prometheus.Observer
	errs prometheus.Counter
	// resyncs that were begun
	resyncs prometheus.Counter

	mu        sync.RWMutex
	resources map[schema.GroupResource]*resourceCounters
}

func (m *metrics) forSink(name string) *sinkMetrics {
	for _, reason := range []string{event.ReasonOversize, event.ReasonRefused} { // all are there from the start: increase() misses a first step
		for _, outcome := range sinks.Outcomes(reason) {
			m.refusals.WithLabelValues(name, reason, string(outcome))
		}
	}
	return &sinkMetrics{
		all: m, sink: name, resources: map[schema.GroupResource]*resourceCounters{},
		send: m.sendSeconds.WithLabelValues(name), lag: m.lagSeconds.WithLabelValues(name),
		errs: m.filterErrors.WithLabelValues(name), resyncs: m.resyncs.WithLabelValues(name),
	}
}

// resourceCounters are the metrics of one sink and resource; all of them exist, at zero, from the first use on.
type resourceCounters struct {
	received, filtered, sent, acknowledged, retried, dropped, merged, oversize, refused, gaps prometheus.Counter
	restated                                                                                  prometheus.Counter
	events, bytes                                                                             prometheus.Gauge

	untold atomic.Int64 // as refused, without control events: what is not in the stream in any form
}

func (s *sinkMetrics) resource(gr schema.GroupResource) *resourceCounters {
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
	c = &resourceCounters{
		received: s.all.received.WithLabelValues(s.sink, name), filtered: s.all.filtered.WithLabelValues(s.sink, name),
		sent: s.all.sent.WithLabelValues(s.sink, name), acknowledged: s.all.acknowledged.WithLabelValues(s.sink, name),
		retried: s.all.retried.WithLabelValues(s.sink, name), dropped: s.all.dropped.WithLabelValues(s.sink, name),
		merged: s.all.merged.WithLabelValues(s.sink, name), oversize: s.all.oversize.WithLabelValues(s.sink, name),
		refused: s.all.refused.WithLabelValues(s.sink, name), gaps: s.all.gaps.WithLabelValues(s.sink, name),
		restated: s.all.restated.WithLabelValues(s.sink, name),
		events:   s.all.queuedEvents.WithLabelValues(s.sink, name), bytes: s.all.queuedBytes.WithLabelValues(s.sink, name),
	}
	s.resources[gr] = c
	return c
}

func (s *sinkMetrics) suppressed(gr schema.GroupResource, reason string) {
	s.all.suppressed.WithLabelValues(s.sink, gr.String(), reason).Inc()
}

func (s *sinkMetrics) of(m *event.Message) *resourceCounters {
	return s.resource(m.Resource.GroupResource())
}

func (c *resourceCounters) queued(m *event.Message) {
	c.events.Inc()
	c.bytes.Add(float64(m.Size()))
}

func (c *resourceCounters) unqueued(m *event.Message) {
	c.events.Dec()
	c.bytes.Sub(float64(m.Size()))
}

// hooks count what the drain reports.
func (s *sinkMetrics) hooks() sinks.Hooks {
	return sinks.Hooks{
		OnSettled: func(m *event.Message, sent time.Time, latency time.Duration) {
			c := s.of(m)
			c.sent.Inc()
			c.acknowledged.Inc()
			if m.Type == event.Gap {
				c.gaps.Inc()
			}
			s.done(c, m)
			s.send.Observe(latency.Seconds())
			s.lag.Observe(sent.Sub(m.Time).Seconds())
		},
		OnRetry: func(m *event.Message, err error) {
			c := s.of(m)
			c.retried.Inc()
			if !errors.Is(err, sinks.ErrNotAttempted) {
				c.sent.Inc()
			}
		},
		OnRejected: func(m *event.Message, r sinks.Rejection) {
			c := s.of(m)
			s.all.refusals.WithLabelValues(s.sink, r.Reason, string(r.Outcome)).Inc()
			if r.Reason == event.ReasonOversize {
				c.oversize.Inc()
			}
			c.sent.Inc()
			if r.Outcome.InStream() { // OnSettled is called as well
				return
			}
			c.refused.Inc()
			if !m.Type.IsControl() {
				c.untold.Add(1)
			}
			s.done(c, m)
		},
	}
}

// done takes a message off the queue's books, if it is in them.
func (s *sinkMetrics) done(c *resourceCounters, m *event.Message) {
	if !m.Time.Before(s.all.started) {
		c.unqueued(m)
	}
}

func (s *sinkMetrics) dropped(m *event.Message) {
	c := s.of(m)
	c.dropped.Inc()
	c.unqueued(m)
}

func (s *sinkMetrics) merged(older *event.Message) {
	c := s.of(older)
	c.merged.Inc()
	c.unqueued(older)
}

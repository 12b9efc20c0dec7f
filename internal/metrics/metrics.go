package metrics

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespace is the first part of every metric name.
const Namespace = "deltabridge"

// Metrics contains the counters and gauges of all sinks. Labels name sinks and resources, never objects.
type Metrics struct {
	// Registry contains all metrics.
	Registry *prometheus.Registry
	// Part contains further metrics that Handler serves. It may be nil.
	Part *Metrics

	// started is the start time of this process. The queue gauges do not count events that are older than this time: a
	// previous process wrote such events to the spill.
	started time.Time
	gaps    gaps
	state   stateReader

	mu    sync.Mutex
	sinks map[string]*Sink // by name
}

// stateReader is a collector that can be replaced.
type stateReader struct {
	atomic.Pointer[prometheus.Collector]
}

// Describe implements prometheus.Collector. It describes no metrics, because they differ.
func (*stateReader) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *stateReader) Collect(ch chan<- prometheus.Metric) {
	if c := r.Load(); c != nil {
		(*c).Collect(ch)
	}
}

// ReadState makes each scrape read the metrics of c, in place of those of the collector of an earlier call.
func (m *Metrics) ReadState(c prometheus.Collector) { m.state.Store(&c) }

// delayBuckets are histogram buckets from 0.5 ms (a broker on the same machine) to 2 hours (a long outage).
//
//nolint:gochecknoglobals // constant in all but name
var delayBuckets = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200,
}

// New returns a Metrics with a new registry. It registers the metric build_info, whose labels are version and commit,
// and the metrics of the Go runtime and of the process.
func New(version, commit string) *Metrics {
	m := NewPart()
	build := factory{m.Registry, prometheus.Labels{"version": version, "commit": commit}}
	build.gauge("build_info", "Always 1; the labels describe the build.").Set(1)
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// NewPart returns a Metrics with a new registry, without the metrics of the build and of the process, for Metrics.Part.
func NewPart() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), started: time.Now(), sinks: map[string]*Sink{}}
	m.Registry.MustRegister(&m.state)
	return m
}

// factory creates metrics with the same labels. All metrics of a name are in one vector, because 300 resources have
// thousands of metrics.
type factory struct {
	registry *prometheus.Registry
	labels   prometheus.Labels
}

func (f factory) names(more ...string) []string {
	return append(slices.Sorted(maps.Keys(f.labels)), more...)
}

func (f factory) counter(name, help string) prometheus.Counter {
	return f.counters(name, help).WithLabelValues()
}

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}
	return registered(f.registry, prometheus.NewCounterVec(opts, f.names(labels...))).MustCurryWith(f.labels)
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	return f.gauges(name, help).WithLabelValues()
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	opts := prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}
	return registered(f.registry, prometheus.NewGaugeVec(opts, f.names(labels...))).MustCurryWith(f.labels)
}

func (f factory) histogram(name, help string) prometheus.Observer {
	opts := prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: delayBuckets}
	return registered(f.registry, prometheus.NewHistogramVec(opts, f.names())).With(f.labels)
}

// registered registers a collector. It returns the collector that was registered earlier under this name, if there is
// one. Like MustRegister, it panics if that collector has another type, other labels or another help text.
func registered[C prometheus.Collector](r *prometheus.Registry, c C) C {
	var earlier prometheus.AlreadyRegisteredError
	if err := r.Register(c); errors.As(err, &earlier) {
		return earlier.ExistingCollector.(C) //nolint:forcetypeassert // panics, as documented
	} else if err != nil {
		panic(err)
	}
	return c
}

// Sink contains the metrics of one sink. It is safe for concurrent use.
type Sink struct {
	all      *Metrics
	name     string
	send     prometheus.Observer
	lag      prometheus.Observer
	refusals *prometheus.CounterVec
	// FilterErrors counts the filter expressions that could not be evaluated for an object.
	FilterErrors prometheus.Counter

	received, filtered, acknowledged, dropped atomic.Int64 // sums over all resources

	mu        sync.Mutex
	resources map[schema.GroupResource]*Resource
}

// ForSink returns the metrics of one sink. All engines of a process count in the same ones.
func (m *Metrics) ForSink(name string) *Sink {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sinks[name] == nil {
		m.sinks[name] = m.newSink(name)
	}
	return m.sinks[name]
}

func (m *Metrics) newSink(name string) *Sink {
	f := factory{m.Registry, prometheus.Labels{"sink": name}}
	s := &Sink{
		all:       m,
		name:      name,
		resources: map[schema.GroupResource]*Resource{},
		send:      f.histogram("send_duration_seconds", "Time from handing an event to the sink until its acknowledgement."),
		lag: f.histogram("event_lag_seconds", "Time from reading a change from the watch until its event was "+
			"acknowledged, including all waiting and retries."),
		refusals: f.counters("refusals_total", "Events that the destination rejected, by reason and outcome: "+
			"metadata, claimCheck, deadLetter, gap, or lost (replaced by a gap event because there was no room for "+
			"dead letters).",
			"reason", "outcome"),
		FilterErrors: f.counter("filter_errors_total",
			"Evaluations of a filter expression that failed on an object. The event passed."),
	}
	// Every label combination is created at the start because increase() does not count the step from an absent series to
	// its first value.
	for _, reason := range []string{event.ReasonOversize, event.ReasonRefused} {
		for _, outcome := range sinks.Outcomes(reason) {
			s.refusals.WithLabelValues(reason, string(outcome))
		}
	}
	return s
}

// Resource contains the metrics of one sink and one resource. All of them exist, with the value zero, from the first
// use.
type Resource struct {
	Received, Filtered, Acknowledged, Retried, Dropped, Merged, Gaps, Restated prometheus.Counter
	Events, Bytes                                                              prometheus.Gauge
	// Suppressed counts suppressed changes, by the label "reason".
	Suppressed *prometheus.CounterVec
	onGap      func(reason string)

	// NotSent counts the rejected events that reached the stream in no form except a gap event. It does not count control
	// events.
	NotSent atomic.Int64
}

// Resource returns the metrics of one resource.
func (s *Sink) Resource(gr schema.GroupResource) *Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[gr] == nil {
		s.resources[gr] = s.newResource(gr.String())
	}
	return s.resources[gr]
}

func (s *Sink) newResource(name string) *Resource {
	f := factory{s.all.Registry, prometheus.Labels{"sink": s.name, "resource": name}}
	lastGap := f.gauges("last_gap_timestamp_seconds", "When a gap event that gap_events_total counts was last delivered, "+
		"by its reason, also before a restart. Absent if there was none.", "reason")
	setGap := func(reason string, at time.Time) {
		lastGap.WithLabelValues(reason).Set(float64(at.UnixMilli()) / 1000)
	}
	for reason, at := range s.all.gaps.of(s.name, name) {
		setGap(reason, at)
	}
	return &Resource{
		Received: summed{
			f.counter("events_received_total", "Changes that an informer handed to the sink's filter."), &s.received,
		},
		Filtered: summed{f.counter("events_filtered_total", "Changes that do not pass the sink's filter."), &s.filtered},
		Acknowledged: summed{
			f.counter("events_acknowledged_total", "Events that the destination acknowledged."), &s.acknowledged,
		},
		Retried: f.counter("events_retried_total", "Failed attempts after which the event is tried again."),
		Dropped: summed{f.counter("events_dropped_total",
			"Events that a full queue dropped (overflow: drop-oldest). A gap event replaces them."), &s.dropped},
		Merged: f.counter("events_merged_total",
			"Events that a full queue merged into a later one of the same object (overflow: compact)."),
		Gaps: f.counter("gap_events_total",
			"Gap events that were delivered: places in the stream where states may be missing. A gap event for an event that "+
				"is kept as a dead letter does not count."),
		onGap: func(reason string) {
			now := time.Now()
			setGap(reason, now)
			s.all.gaps.note(s.name, name, reason, now)
		},
		Restated: f.counter("events_restated_total",
			"Objects that resyncs re-sent in their current state. They are not changes."),
		Events: f.gauge("queue_events", "Events that are queued or in flight."),
		Bytes:  f.gauge("queue_bytes", "Bytes of the events that are queued or in flight."),
		Suppressed: f.counters("events_suppressed_total", "Changes that were suppressed although the object passes the "+
			"sink's filter, by reason: operations, when, onlyChanges, debounce (a later update has replaced one that waited), "+
			"or the ignoreChanges entry that covers the whole change. They are included in events_filtered_total.", "reason"),
	}
}

// Totals contains the sums of a sink's counters over all resources.
type Totals struct{ Received, Filtered, Acknowledged, Dropped int64 }

// Totals returns the current sums.
func (s *Sink) Totals() Totals {
	return Totals{s.received.Load(), s.filtered.Load(), s.acknowledged.Load(), s.dropped.Load()}
}

// summed is a counter whose Inc also counts in a sum. Reading thousands of counters instead would take milliseconds.
type summed struct {
	prometheus.Counter

	sum *atomic.Int64
}

// Inc implements prometheus.Counter.
func (c summed) Inc() {
	c.Counter.Inc()
	c.sum.Add(1)
}

// Of returns the metrics of the message's resource.
func (s *Sink) Of(m *event.Message) *Resource {
	return s.Resource(m.StreamResource().GroupResource())
}

// Queue adds a message to the queue gauges.
func (c *Resource) Queue(m *event.Message) {
	c.Events.Inc()
	c.Bytes.Add(float64(m.Size()))
}

// Unqueue removes a message from the queue gauges.
func (c *Resource) Unqueue(m *event.Message) {
	c.Events.Dec()
	c.Bytes.Sub(float64(m.Size()))
}

// gap counts a gap.
func (c *Resource) gap(reason string) {
	c.Gaps.Inc()
	c.onGap(reason)
}

// Hooks returns hooks that count the outcomes that the drain reports.
func (s *Sink) Hooks() sinks.Hooks {
	return sinks.Hooks{
		OnSettled: func(m *event.Message, sent time.Time, latency time.Duration) {
			c := s.Of(m)
			c.Acknowledged.Inc()
			if m.Type == event.Gap {
				c.gap(m.GapInfo.Reason)
			}
			s.done(c, m)
			s.send.Observe(latency.Seconds())
			s.lag.Observe(sent.Sub(m.Since()).Seconds())
		},
		OnStored: func(m *event.Message) { s.done(s.Of(m), m) },
		OnRetry:  func(m *event.Message) { s.Of(m).Retried.Inc() },
		OnRejected: func(m *event.Message, r sinks.Rejection) {
			c := s.Of(m)
			s.refusals.WithLabelValues(r.Reason, string(r.Outcome)).Inc()
			if r.Outcome.InStream() { // OnSettled is called as well
				return
			}
			if r.Outcome != sinks.OutcomeDeadLetter {
				c.gap(r.Reason)
			}
			if !m.Type.IsControl() {
				c.NotSent.Add(1)
			}
			s.done(c, m)
		},
	}
}

// done removes a message from the queue gauges if this process counted the message there.
func (s *Sink) done(c *Resource, m *event.Message) {
	if !m.Since().Before(s.all.started) {
		c.Unqueue(m)
	}
}

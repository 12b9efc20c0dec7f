package observe

import (
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector. It describes no metrics, because the set of series depends on the watched
// resources.
func (o *Observer) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	fuses := o.fuses(time.Now())
	for _, s := range o.Sinks {
		rows{ch, prometheus.Labels{"sink": s.Name}}.collectSink(s, fuses[s.Name])
	}
	for _, i := range o.Informers() {
		labels := prometheus.Labels{
			"resource":          i.Resource.GroupResource().String(),
			"watched_namespace": i.Namespace,
			"selector":          i.Selector,
		}
		rows{ch, labels}.collectInformer(i)
	}
	if o.WithoutTracker {
		return
	}
	rows{ch, nil}.collectCheckpoint(o.Tracker.Stats())
}

func (r rows) collectSink(s *Sink, fuse *control.Fuse) {
	r.gauge("sink_connected", "1 if the sink is connected and its destination accepts events. 0 while the bridge "+
		"connects or retries, and while the sink is paused. A sink with nothing to send checks its destination every 15 seconds.",
		boolean(s.Drain.Delivering()))
	r.gauge("sink_paused", "1 while the sink is paused (bridge pause).", boolean(!s.Drain.PausedSince().IsZero()))
	r.gauge("queue_age_seconds", "Age of the oldest event that waits for its acknowledgement, since its change was read "+
		"from the watch; 0 if none waits. Parked events do not count. Events that a previous process left on disk, and the "+
		"spilled events behind them, count once the sink has connected.", s.Queue.Age().Seconds())
	r.counter("queue_blocked_total", "Pushes that had to wait because the queue was full.", s.Queue.Stats().Blocked)
	if fuse != nil {
		r.gauge(
			"fuse_seconds",
			"How much longer the outage of the sink, or its pause, may last at least before something is "+
				"lost; 0 or less if something may be lost already. At most 30 days. Absent while no event waits for longer than usual.",
			fuse.Seconds,
		)
	}
	if s.Audit != nil {
		r.gauge("audit_backlog_events", "Audit events in the journal that the sink has not delivered.",
			float64(s.Audit.Backlog()))
	}
	r.collectParked(s)
	r.collectSpill(s)
}

// rows writes metrics that share the same labels.
type rows struct {
	ch     chan<- prometheus.Metric
	labels prometheus.Labels
}

func (r rows) gauge(name, help string, value float64) {
	r.write(prometheus.GaugeValue, name, help, value)
}

func (r rows) counter(name, help string, value int64) {
	r.write(prometheus.CounterValue, name, help, float64(value))
}

func (r rows) write(kind prometheus.ValueType, name, help string, value float64) {
	desc := prometheus.NewDesc(metrics.Namespace+"_"+name, help, nil, r.labels)
	r.ch <- prometheus.MustNewConstMetric(desc, kind, value)
}

func boolean(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func (r rows) collectInformer(s informer.Status) {
	r.gauge("informer_objects", "Objects that the informer knows.", float64(s.Objects))
	if s.Synced || !s.Excused {
		r.gauge("informer_synced", "1 if the initial list was handed to all sinks. Absent while the bridge is ready without "+
			"the list, because the resource is forbidden and `watch` does not name it without wildcards.", boolean(s.Synced))
	}
	r.gauge("informer_forbidden", "1 if RBAC forbids to list or watch the resource.", boolean(s.Forbidden))
	if !s.LastContact.IsZero() {
		r.gauge("informer_last_contact_timestamp_seconds", "When the informer last received a response from the API server.",
			float64(s.LastContact.UnixMilli())/1000)
	}
	r.counter("informer_relists_total", "Lists after the initial list, because the watch could not be continued.",
		s.Relists)
	r.counter("informer_errors_total", "List and watch requests that failed.", s.Errors)
}

// parkedRows is the maximum number of destinations with parked events per sink that have a series of their own.
const parkedRows = 20

// collectParked writes the number of parked events per destination.
func (r rows) collectParked(s *Sink) {
	show := func(destination string, events int) {
		rows{r.ch, prometheus.Labels{"sink": s.Name, "destination": destination}}.gauge("parked_events",
			"Events that wait on disk because their topic, partition or subject accepts none. "+
				"There is a series for each of the first 20 such destinations, and one for all others.", float64(events))
	}
	others := 0
	for n, part := range s.Drain.Unavailable() {
		if n < parkedRows {
			show(part.Destination, part.Events)
		} else {
			others += part.Events
		}
	}
	if others > 0 {
		show("others", others)
	}
	_, lost := s.Drain.Parked.Bytes()
	r.counter("parked_lost_events_total", "Parked events that were lost because the file was damaged.", lost)
}

func (r rows) collectSpill(s *Sink) {
	spill := s.Queue.SpillStats()
	r.gauge("spill_events", "Events in the sink's spill.", float64(spill.Items))
	r.gauge("spill_bytes", "Bytes of the events in the sink's spill.", float64(spill.Bytes))
	r.counter("spill_errors_total", "Writes to the spill that failed and were tried again.", spill.Errors)
	r.counter("spill_lost_events_total", "Spilled events that were lost because files were damaged.", s.Unreadable.Load())
}

func (r rows) collectCheckpoint(stats checkpoint.Stats) {
	r.gauge("checkpoint_bytes", "Size of the checkpoint's file.", float64(stats.SizeBytes))
	r.counter("checkpoint_commits_total", "Commits to the checkpoint.", stats.Commits)
	r.counter("checkpoint_errors_total", "Commits to the checkpoint that failed.", stats.Errors)
	r.counter("checkpoint_refused_total", "Checkpoint files that were quarantined.", stats.Quarantined)
}

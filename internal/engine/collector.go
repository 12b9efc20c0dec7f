package engine

import (
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/prometheus/client_golang/prometheus"
)

// stateCollector reads the state of the sinks, the informers and the checkpoint during a scrape.
type stateCollector struct {
	pipelines []*pipeline
	informers func() []informer.Status
	tracker   *tracker.Tracker // nil if another engine of the process has the metrics of the checkpoint
	fuses     func(now time.Time) map[string]*control.Fuse
}

// Describe implements prometheus.Collector. It describes no metrics, because the set of series depends on the watched
// resources.
func (c *stateCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	fuses := c.fuses(time.Now())
	for _, p := range c.pipelines {
		r := rows{ch, prometheus.Labels{"sink": p.Name}}
		r.gauge("sink_connected", "1 if the sink is connected and its destination accepts events. 0 while the bridge "+
			"connects or retries, and while the sink is paused. A sink with nothing to send checks its destination every 15 seconds.",
			boolean(p.Drain.Delivering()))
		r.gauge("sink_paused", "1 while the sink is paused (bridge pause).", boolean(!p.Drain.PausedSince().IsZero()))
		r.gauge("queue_age_seconds", "Age of the oldest event that waits for its acknowledgement, since its change was read "+
			"from the watch; 0 if none waits. Parked events do not count. Events that a previous process left on disk, and the "+
			"spilled events behind them, count once the sink has connected.", p.Queue.Age().Seconds())
		r.counter("queue_blocked_total", "Pushes that had to wait because the queue was full.", p.Queue.Stats().Blocked)
		if fuse := fuses[p.Name]; fuse != nil {
			r.gauge(
				"fuse_seconds",
				"How much longer the outage of the sink, or its pause, may last at least before something is "+
					"lost; 0 or less if something may be lost already. At most 30 days. Absent while no event waits for longer than usual.",
				fuse.Seconds,
			)
		}
		if p.audit != nil {
			r.gauge("audit_backlog_events", "Audit events in the journal that the sink has not delivered.",
				float64(p.audit.Backlog()))
		}
		if p.Actor {
			waiting, _ := p.lines.sizes()
			r.gauge("actor_waiting_events", "Events that wait until it is known who made the change, or behind such events. "+
				"They count neither as queued nor as lag.", float64(waiting.events))
		}
		r.collectParked(p)
		r.collectSpill(p)
		r.collectLetters(p)
	}
	for _, s := range c.informers() {
		labels := prometheus.Labels{
			"resource":          s.Resource.GroupResource().String(),
			"watched_namespace": s.Namespace,
			"selector":          s.Selector,
		}
		rows{ch, labels}.collectInformer(s)
	}
	if c.tracker == nil {
		return
	}
	for source, sinks := range c.tracker.Lags() {
		delete(sinks, eventCounts)
		for sink, lag := range sinks {
			rows{ch, prometheus.Labels{"source": source, "sink": sink}}.collectLag(lag)
		}
	}
	rows{ch, nil}.collectCheckpoint(c.tracker.Stats())
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

// version writes a resourceVersion as a gauge. It writes nothing if the resourceVersion is not a number.
func (r rows) version(name, help, resourceVersion string) {
	if v, err := strconv.ParseFloat(resourceVersion, 64); err == nil {
		r.gauge(name, help, v)
	}
}

// time writes a timestamp unless it is zero.
func (r rows) time(name, help string, at time.Time) {
	if !at.IsZero() {
		r.gauge(name, help, float64(at.UnixMilli())/1000)
	}
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
	r.gauge("informer_resumed", "1 if the watch continued where the checkpoint ended, without a list.", boolean(s.Resumed))
	r.gauge("informer_checkpoint_refused", "1 if the checkpoint is ahead of the cluster.", boolean(s.Refused))
	r.version("informer_resource_version", "Last resourceVersion that the informer saw.", s.ResourceVersion)
	r.time("informer_last_contact_timestamp_seconds", "When the informer last received a response from the API server.",
		s.LastContact)
	r.counter("informer_relists_total", "Lists after the initial list, because the watch could not be continued.",
		s.Relists)
	r.counter("informer_errors_total", "List and watch requests that failed.", s.Errors)
}

// parkedRows is the maximum number of destinations with parked events per sink that have a series of their own.
const parkedRows = 20

// collectParked writes the number of parked events per destination.
func (r rows) collectParked(p *pipeline) {
	show := func(destination string, events int) {
		rows{r.ch, prometheus.Labels{"sink": p.Name, "destination": destination}}.gauge("parked_events",
			"Events that wait on disk because their topic, partition or subject accepts none. "+
				"There is a series for each of the first 20 such destinations, and one for all others.", float64(events))
	}
	others := 0
	for n, part := range p.Drain.Unavailable() {
		if n < parkedRows {
			show(part.Destination, part.Events)
		} else {
			others += part.Events
		}
	}
	if others > 0 {
		show("others", others)
	}
	bytes, lost := p.Drain.Parked.Bytes()
	r.gauge("parked_bytes", "Bytes of the parked events of the sink.", float64(bytes))
	r.counter("parked_lost_events_total", "Parked events that were lost because the file was damaged.", lost)
}

func (r rows) collectSpill(p *pipeline) {
	items, bytes, fileBytes, errs, _ := p.Queue.SpillStats()
	r.gauge("spill_events", "Events in the sink's spill.", float64(items))
	r.gauge("spill_bytes", "Bytes of the events in the sink's spill.", float64(bytes))
	r.gauge("spill_file_bytes", "Size of the files of the sink's spill.", float64(fileBytes))
	r.counter("spill_errors_total", "Writes to the spill that failed and were tried again.", errs)
	r.counter("spill_lost_events_total", "Spilled events that were lost because files were damaged.", p.Unreadable.Load())
}

// collectLetters writes the number and size of the dead letters. It reads both from the file because commands change
// the file too.
func (r rows) collectLetters(p *pipeline) {
	if p.Letters == nil {
		return
	}
	letters, size, err := p.Letters.Stats()
	if err != nil {
		p.Log.Warn("cannot count the dead letters", "err", err)
		return
	}
	r.gauge("dead_letters", "Dead letters that the sink has stored on disk.", float64(letters))
	r.gauge("dead_letter_bytes", "Bytes of the dead letters that the sink has stored on disk.", float64(size))
}

func (r rows) collectLag(lag ledger.Lag) {
	seconds := 0.0
	if lag.Open > 0 {
		seconds = time.Since(lag.Since).Seconds()
	}
	r.gauge("unsettled_events", "Events of the source that the sink has not settled.", float64(lag.Open))
	r.version("watermark_resource_version", "ResourceVersion up to which the sink has settled all events of the source.",
		lag.ResourceVersion)
	r.gauge("watermark_lag_seconds", "Age of the oldest event of the source that the sink has not settled.", seconds)
}

func (r rows) collectCheckpoint(stats checkpoint.Stats) {
	r.gauge("checkpoint_bytes", "Size of the checkpoint's file.", float64(stats.SizeBytes))
	r.counter("checkpoint_commits_total", "Commits to the checkpoint.", stats.Commits)
	r.counter("checkpoint_errors_total", "Commits to the checkpoint that failed.", stats.Errors)
	r.counter("checkpoint_refused_total", "Checkpoint files that were quarantined.", stats.Quarantined)
	r.time("checkpoint_last_commit_timestamp_seconds", "When the checkpoint was last written.", stats.LastCommit)
}

package engine

import (
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/prometheus/client_golang/prometheus"
)

// stateCollector reads the state of sinks and informers when it is scraped.
type stateCollector struct {
	pipelines []*pipeline
	informers func() []informer.Status
	tracker   *tracker.Tracker
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metrics.Namespace+"_"+name, help, labels, nil)
}

var (
	descConnected = desc("sink_connected", "1 if the sink's destination takes events.", "sink")
	descBlocked   = desc("queue_blocked_total", "Pushes that had to wait because the queue was full.", "sink")
	descObjects   = desc("informer_objects", "Objects that the informer knows.", "resource", "watched_namespace", "selector")
	descVersion   = desc("informer_resource_version", "Last resourceVersion that the informer saw.", "resource", "watched_namespace", "selector")
	descContact   = desc("informer_last_contact_timestamp_seconds", "When the informer last heard of the API server.", "resource", "watched_namespace", "selector")
	descRelists   = desc("informer_relists_total", "Lists after the first one: the watch could not be continued.", "resource", "watched_namespace", "selector")
	descErrors    = desc("informer_errors_total", "List and watch requests that failed.", "resource", "watched_namespace", "selector")
	descResumed   = desc("informer_resumed", "1 if the watch continued where the checkpoint ended, without a list.", "resource", "watched_namespace", "selector")
	descRefused   = desc("informer_checkpoint_refused", "1 if the checkpoint was refused: the cluster has not reached its resourceVersion.", "resource", "watched_namespace", "selector")
	descUnsettled = desc("unsettled_events", "Events of a source that the sink has not settled: acknowledged, spilled, dropped or refused.", "source", "sink")
	descWatermark = desc("watermark_resource_version", "The resourceVersion up to which the sink has settled everything of the source.", "source", "sink")
	descLagging   = desc("watermark_lag_seconds", "For how long the oldest event that the sink has not settled waits.", "source", "sink")
	descSpilled   = desc("spill_events", "Events that lie in the sink's spill.", "sink")
	descSpillSize = desc("spill_bytes", "Bytes of the events that lie in the sink's spill.", "sink")
	descSpillFile = desc("spill_file_bytes", "Size of the files of the sink's spill.", "sink")
	descSpillErrs = desc("spill_errors_total", "Writes to the spill that failed and were tried again.", "sink")
	descSpillLost = desc("spill_lost_events_total", "Events in the spill that could not be read back: its files were damaged.", "sink")
	descParked    = desc("parked_events", "Events that wait on disk because their destination, a topic, partition or subject, takes none: a row for each of the first 20 such destinations, and one for all others.", "sink", "destination")
	descParkedLen = desc("parked_bytes", "Bytes of the parked events of the sink.", "sink")
	descParkLost  = desc("parked_lost_events_total", "Parked events that could not be read back: the file was damaged.", "sink")
	descLetters   = desc("dead_letters", "Dead letters in the sink's file.", "sink")
	descLetterLen = desc("dead_letter_bytes", "Bytes of the dead letters in the sink's file.", "sink")
	descCPSize    = desc("checkpoint_bytes", "Size of the checkpoint's file.")
	descCPAge     = desc("checkpoint_last_commit_timestamp_seconds", "When the checkpoint was last written.")
	descCPCommits = desc("checkpoint_commits_total", "Transactions of the checkpoint.")
	descCPErrors  = desc("checkpoint_errors_total", "Transactions of the checkpoint that failed.")
	descCPRefused = desc("checkpoint_refused_total", "Checkpoint files that were quarantined: corrupt, foreign, of a newer version or of another cluster.")
	descSynced    = desc("informer_synced", "1 if the initial list was handed to all sinks.", "resource", "watched_namespace", "selector")
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descConnected, descBlocked, descObjects, descVersion, descContact, descRelists, descErrors, descSynced,
		descResumed, descRefused, descUnsettled, descWatermark, descLagging, descSpilled, descSpillSize, descSpillFile, descSpillErrs, descSpillLost,
		descParked, descParkedLen, descParkLost, descLetters, descLetterLen, descCPSize, descCPAge, descCPCommits, descCPErrors, descCPRefused,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	flag := func(on bool) float64 {
		if on {
			return 1
		}
		return 0
	}
	for _, p := range c.pipelines {
		stats := p.queue.Stats()
		ch <- prometheus.MustNewConstMetric(descConnected, prometheus.GaugeValue, flag(p.drain.Connected()), p.name)
		ch <- prometheus.MustNewConstMetric(descBlocked, prometheus.CounterValue, float64(stats.Blocked), p.name)
	}
	c.collectParked(ch)
	c.collectLetters(ch)
	c.collectCheckpoint(ch)
	for _, s := range c.informers() {
		labels := []string{s.Resource.GroupResource().String(), s.Namespace, s.Selector}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
		gauge(descObjects, float64(s.Objects))
		gauge(descSynced, flag(s.Synced))
		gauge(descResumed, flag(s.Resumed))
		gauge(descRefused, flag(s.Refused))
		if v, err := strconv.ParseFloat(s.ResourceVersion, 64); err == nil {
			gauge(descVersion, v)
		}
		if !s.LastContact.IsZero() {
			gauge(descContact, float64(s.LastContact.UnixMilli())/1000)
		}
		ch <- prometheus.MustNewConstMetric(descRelists, prometheus.CounterValue, float64(s.Relists), labels...)
		ch <- prometheus.MustNewConstMetric(descErrors, prometheus.CounterValue, float64(s.Errors), labels...)
	}
}

// parkedRows is how many destinations with parked events are shown by name for each sink.
const parkedRows = 20

// collectParked shows the destinations that take no events.
func (c *stateCollector) collectParked(ch chan<- prometheus.Metric) {
	for _, p := range c.pipelines {
		if p.drain.Parked == nil {
			continue
		}
		others := 0
		for n, part := range p.drain.Unavailable() {
			if n >= parkedRows {
				others += part.Events
				continue
			}
			ch <- prometheus.MustNewConstMetric(descParked, prometheus.GaugeValue, float64(part.Events), p.name, part.Destination)
		}
		if others > 0 {
			ch <- prometheus.MustNewConstMetric(descParked, prometheus.GaugeValue, float64(others), p.name, "others")
		}
		bytes, lost := p.drain.Parked.Bytes()
		ch <- prometheus.MustNewConstMetric(descParkedLen, prometheus.GaugeValue, float64(bytes), p.name)
		ch <- prometheus.MustNewConstMetric(descParkLost, prometheus.CounterValue, float64(lost), p.name)
	}
}

// collectLetters shows the files of dead letters, which commands change too.
func (c *stateCollector) collectLetters(ch chan<- prometheus.Metric) {
	for _, p := range c.pipelines {
		if p.letters == nil {
			continue
		}
		letters, size, err := p.letters.Stats()
		if err != nil {
			p.log.Warn("dead letters can't be counted", "err", err)
			continue
		}
		ch <- prometheus.MustNewConstMetric(descLetters, prometheus.GaugeValue, float64(letters), p.name)
		ch <- prometheus.MustNewConstMetric(descLetterLen, prometheus.GaugeValue, float64(size), p.name)
	}
}

// collectCheckpoint shows what is settled, and the files that hold it.
func (c *stateCollector) collectCheckpoint(ch chan<- prometheus.Metric) {
	for _, p := range c.pipelines {
		items, bytes, fileBytes, errs, _ := p.queue.SpillStats()
		ch <- prometheus.MustNewConstMetric(descSpilled, prometheus.GaugeValue, float64(items), p.name)
		ch <- prometheus.MustNewConstMetric(descSpillSize, prometheus.GaugeValue, float64(bytes), p.name)
		ch <- prometheus.MustNewConstMetric(descSpillFile, prometheus.GaugeValue, float64(fileBytes), p.name)
		ch <- prometheus.MustNewConstMetric(descSpillErrs, prometheus.CounterValue, float64(errs), p.name)
		ch <- prometheus.MustNewConstMetric(descSpillLost, prometheus.CounterValue, float64(p.unreadable.Load()), p.name)
	}
	for source, sinks := range c.tracker.Lags() {
		for sink, lag := range sinks {
			ch <- prometheus.MustNewConstMetric(descUnsettled, prometheus.GaugeValue, float64(lag.Open), source, sink)
			if v, err := strconv.ParseFloat(lag.ResourceVersion, 64); err == nil {
				ch <- prometheus.MustNewConstMetric(descWatermark, prometheus.GaugeValue, v, source, sink)
			}
			seconds := 0.0
			if lag.Open > 0 {
				seconds = time.Since(lag.Since).Seconds()
			}
			ch <- prometheus.MustNewConstMetric(descLagging, prometheus.GaugeValue, seconds, source, sink)
		}
	}
	stats := c.tracker.Stats()
	ch <- prometheus.MustNewConstMetric(descCPSize, prometheus.GaugeValue, float64(stats.SizeBytes))
	ch <- prometheus.MustNewConstMetric(descCPCommits, prometheus.CounterValue, float64(stats.Commits))
	ch <- prometheus.MustNewConstMetric(descCPErrors, prometheus.CounterValue, float64(stats.Errors))
	ch <- prometheus.MustNewConstMetric(descCPRefused, prometheus.CounterValue, float64(stats.Quarantined))
	if !stats.LastCommit.IsZero() {
		ch <- prometheus.MustNewConstMetric(descCPAge, prometheus.GaugeValue, float64(stats.LastCommit.UnixMilli())/1000)
	}
}

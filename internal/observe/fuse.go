package observe

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/files"
)

const (
	// history is how long the API server keeps changes that the bridge has not read: what the watch cache of
	// kube-apiserver keeps at least of a busy resource. (Etcd keeps them for at least five minutes more, but an API server
	// continues a watch only from its cache.)
	history = 75 * time.Second
	// longestFuse is the longest time that a fuse shows. No rate stays the same for longer.
	longestFuse = 30 * 24 * time.Hour
	// storedHeader is the size on disk of what an event has in addition to its data, at most.
	storedHeader = 1 << 10
	// lingering is the age of an event that waits for longer than usual.
	lingering = 10 * time.Second
	// auditRetries is how long an API server tries to send audit events, at least, before it drops them.
	auditRetries = 80 * time.Second
	// auditRate is the name of the rate at which audit events arrive.
	auditRate = "audit"
	// journalFull is the overflow policy of a sink that is sent audit events: they are refused.
	journalFull = "refuse"
)

// outage describes the events that wait for a sink, and the room that is left for more.
type outage struct {
	growth      float64       // by how many events this number grows per second
	diskEvents  float64       // events for which spill.maxBytes has room
	diskFull    time.Duration // until all sinks together have filled the file system
	memory      int           // fifo.Queue.Room
	blocked     time.Duration // how long sources have been waiting for the queue; 0 if they do not wait
	overflow    string        // Buffer.Overflow
	onlyHere    time.Duration // age of the oldest event that only this replica has; 0 if the state log has all of them
	eventOnDisk float64       // bytes of an event on disk
}

// fuse returns how much longer the outage may last at least before something is lost.
func (o *outage) fuse() *control.Fuse {
	var text string
	full := o.untilFull()
	left := full
	switch {
	case o.blocked > 0:
		left = history - o.blocked
		text = fmt.Sprintf("the queue is full, and sources have been waiting for %s; the API server keeps changes that are "+
			"not read for at least %s", human(o.blocked), human(history))
	case full == longestFuse:
		text = "the number of waiting events does not grow, or only slowly"
	default:
		text = fmt.Sprintf("at %.1f more waiting events per second, the queue is full in %s", o.growth, human(full))
	}
	switch {
	case o.blocked > 0 || full == longestFuse:
	case o.overflow == delivery.Block:
		left += history
		text += fmt.Sprintf("; then, the API server keeps changes that are not read for at least %s", human(history))
	case o.overflow == journalFull:
		left += auditRetries
		text += fmt.Sprintf("; then, no audit event is accepted, and API servers drop them after %s", human(auditRetries))
	case o.overflow == delivery.Compact:
		text += "; then, it merges events of the same object, so intermediate states are lost"
	default:
		text += "; then, it drops events"
	}
	if here := max(0, history-o.onlyHere); o.onlyHere > 0 && here < left {
		left = here
		text = fmt.Sprintf("the state log is unavailable, so only this replica has events that have been waiting for %s; "+
			"if it is lost, the API server has changes of at least the last %s", human(o.onlyHere), human(history))
	}
	return &control.Fuse{Seconds: math.Round(min(left, longestFuse).Seconds()*10) / 10, Text: text}
}

// untilFull returns how long it takes at least until disk and memory are full.
func (o *outage) untilFull() time.Duration {
	if o.growth <= 0 {
		return longestFuse
	}
	seconds := min(o.diskEvents/o.growth, o.diskFull.Seconds()) + float64(o.memory)/o.growth
	return time.Duration(min(max(0, seconds), longestFuse.Seconds()) * float64(time.Second))
}

func human(d time.Duration) string { return duration.HumanDuration(d) }

// fuses returns the fuses of the sinks, by name. A sink has one while events wait for longer than usual.
func (o *Observer) fuses(now time.Time) map[string]*control.Fuse {
	outages := map[string]*outage{}
	growth := 0. // of the files of all sinks, in bytes per second
	for _, s := range o.Sinks {
		if current := o.outage(s, now); current != nil {
			outages[s.Name] = current
			growth += max(0, current.growth) * current.eventOnDisk
		}
	}
	if len(outages) == 0 {
		return nil
	}
	full := longestFuse
	if free, err := files.Free(o.State); err == nil && growth > 0 {
		full = time.Duration(min(float64(free)/growth, longestFuse.Seconds()) * float64(time.Second))
	}
	fuses := map[string]*control.Fuse{}
	for name, current := range outages {
		current.diskFull = full
		fuses[name] = current.fuse()
	}
	return fuses
}

// outage returns the outage of a sink, without diskFull. It returns nil if no events wait for longer than usual.
func (o *Observer) outage(s *Sink, now time.Time) *outage {
	if s.Audit != nil {
		return o.auditOutage(s, now)
	}
	stats := s.Queue.Stats()
	spill := s.Queue.SpillStats()
	parked := s.Parked()
	parkedBytes, _ := s.Drain.Parked.Bytes()
	waiting, onDisk := int64(stats.Items)+parked, spill.Items+parked
	blocked, age := s.Queue.BlockedSince(), s.Queue.Age()
	delivering := s.Drain.Delivering()
	if waiting == 0 || delivering && blocked.IsZero() && onDisk == 0 && age < lingering {
		return nil
	}
	out := &outage{overflow: s.Buffer.Overflow, memory: s.Queue.Room(), eventOnDisk: storedHeader}
	if inMemory := int64(stats.Items) - spill.Items; inMemory > 0 {
		out.eventOnDisk += float64(stats.Bytes) / float64(inMemory)
	}
	if onDisk > 0 {
		out.eventOnDisk = float64(spill.Bytes+parkedBytes) / float64(onDisk)
	}
	out.diskEvents = float64(max(0, s.Buffer.DiskBytes-spill.Bytes-parkedBytes)) / out.eventOnDisk
	if delivering {
		out.growth = o.rates.highest("waiting "+s.Name, now, waiting)
	} else {
		out.growth = o.rates.highest("pushed "+s.Name, now, stats.Pushed)
	}
	if !blocked.IsZero() {
		out.blocked = max(1, now.Sub(blocked))
	}
	if o.DetachedSince == nil {
		return out
	}
	if since := o.DetachedSince(); !since.IsZero() {
		if out.onlyHere = max(1, now.Sub(since)); age > 0 {
			out.onlyHere = min(out.onlyHere, age)
		}
	}
	return out
}

// auditOutage is outage for a sink that is sent audit events, which wait in the journal.
func (o *Observer) auditOutage(s *Sink, now time.Time) *outage {
	backlog, journal := s.Audit.Backlog(), o.Journal.Status()
	if backlog == 0 || s.Drain.Delivering() {
		return nil
	}
	out := &outage{overflow: journalFull, diskEvents: math.Inf(1), eventOnDisk: storedHeader}
	if stored := int64(journal.Last - journal.Acked); stored > 0 {
		out.eventOnDisk = max(1, float64(journal.Bytes)/float64(stored))
	}
	if journal.MaxBytes > 0 {
		out.diskEvents = float64(max(0, journal.MaxBytes-journal.Bytes)) / out.eventOnDisk
	}
	out.growth = o.rates.highest(auditRate, now, int64(journal.Last))
	return out
}

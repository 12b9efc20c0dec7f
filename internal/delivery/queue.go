package delivery

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

// holdUp is the maximum time that pushes wait for the sink before the queue writes to disk. The wait begins when a
// quarter of the queue's bounds is in use. The maximum is far shorter than the history that the API server keeps, and
// short enough to delay other sinks only slightly.
const holdUp = 250 * time.Millisecond

// openQueue opens the queue. An overflow policy drops or merges only events in memory, and only while the disk is full.
func (d *Delivery) openQueue() error {
	if err := os.MkdirAll(d.options.State, 0o700); err != nil {
		return fmt.Errorf("state.path: %w", err)
	}
	path := filepath.Join(d.options.State, "spill-"+d.options.Sink)
	log, err := d.spillLog(path)
	if err != nil {
		return err
	}
	options := fifo.Options[*event.Message]{
		Path: path, Log: log,
		MaxItems: max(2, d.options.Buffer.Events), MaxBytes: d.options.Buffer.Bytes, MaxDiskBytes: d.options.Buffer.DiskBytes,
		Size:   (*event.Message).Size,
		Encode: func(dst []byte, m *event.Message) ([]byte, error) { return m.AppendStored(dst) },
		Decode: decode,
		Mark: func(m *event.Message) (source, position string) {
			if m.Origin.Source == "" {
				return "", ""
			}
			return Mark(d.user.Load().Tracker.ClusterUID(), m.Origin.Source, m.History), m.Origin.Position
		},
		OnSettled: func(messages []*event.Message) {
			for _, m := range messages {
				d.settle(m)
			}
		},
		Receipt: func(m *event.Message) *event.Message { return &event.Message{Origin: m.Origin, History: m.History} },
		OnCorrupt: func(l fifo.Loss) []*event.Message {
			if l.Items() == 0 {
				d.noteLoss()
				return nil
			}
			d.Unreadable.Add(int64(l.Items()))
			return d.user.Load().Lost(l, time.Now())
		},
		HoldUp: holdUp, Since: (*event.Message).Since,
		Logger: d.Log,
	}
	switch d.options.Buffer.Overflow {
	case Compact:
		options.Key, options.Merge, options.OnMerge = mergeKey, event.Merge, d.merged
	case DropOldest:
		options.Gap = d.foldGap
	}
	queue, err := fifo.New(options)
	if err != nil {
		return err
	}
	d.Queue = queue
	if queue.Stats().Items > 0 {
		d.Spilled = queue.Positions()
	}
	return nil
}

// decode parses a spilled message. The source brings a message again only if an earlier process has left it.
func decode(data []byte, left bool) (*event.Message, error) {
	m, err := event.ParseStored(data)
	if err == nil {
		m.Origin.Left = left
	}
	return m, err
}

// spillLog returns the log in the checkpoint to which the queue spills, or nil if the queue spills to its directory.
func (d *Delivery) spillLog(directory string) (fifo.Log, error) {
	events, err := d.options.Store.Events(d.options.Sink)
	if err != nil {
		return nil, err
	}
	inDirectory := func() bool {
		n, err := fifo.Peek(directory)
		return n > 0 || err != nil
	}
	if d.usesCheckpoint(events.Last() > events.Acked(), inDirectory) {
		return events, nil
	}
	return nil, nil
}

// parkedStorage returns the storage in the checkpoint for parked events, or nil if they are in a file of their own.
func (d *Delivery) parkedStorage() (parked.Storage, error) {
	waiting := false
	events := d.options.Store.Parked(d.options.Sink)
	if err := events.Each("", func(string, []byte) bool { waiting = true; return false }); err != nil {
		return nil, err
	}
	inFile := func() bool {
		_, err := os.Stat(filepath.Join(d.options.State, "parked-"+d.options.Sink+".db"))
		return err == nil
	}
	if d.usesCheckpoint(waiting, inFile) {
		return events, nil
	}
	return nil, nil
}

// WhyOutside says why a sink's events are not in the state log (Delivery.OutsideLog).
const WhyOutside = "an earlier process without a state log has left some; after they are delivered, restart the bridge"

// usesCheckpoint reports whether events that wait on disk are part of the checkpoint. They are if there is a state log.
// But if an earlier process has left events in the other place, this place is used until the next start.
func (d *Delivery) usesCheckpoint(waiting bool, waitingOutside func() bool) bool {
	switch {
	case waiting:
		return true
	case !d.options.Store.HasLog():
		return false
	case waitingOutside():
		d.OutsideLog = true
		d.Log.Warn("events that wait on disk are not in the state log: " + WhyOutside)
		return false
	}
	return true
}

// Mark returns the name of a source in a spill. Positions of two histories of etcd cannot be compared, so that
// they have two names.
func Mark(uid, source, history string) string {
	if history != "" {
		source += " since " + history
	}
	return uid + "/" + source
}

// mergeKey returns the key of messages that can be merged with each other, or an empty string if m cannot be merged.
func mergeKey(m *event.Message) string {
	if !event.Mergeable(m) {
		return ""
	}
	return string(m.Identity.UID)
}

// openParked opens the store of parked events: events whose topic, partition or subject does not accept messages. It
// shares its disk limit with the spill.
func (d *Delivery) openParked() (*parked.Store, error) {
	storage, err := d.parkedStorage()
	if err != nil {
		return nil, err
	}
	return parked.Open(parked.Options{
		Dir: d.options.State, Sink: d.options.Sink, Storage: storage, MaxBytes: d.options.Buffer.DiskBytes, Logger: d.Log,
		Used:   func() int64 { return d.Queue.SpillStats().Bytes },
		OnLost: d.noteLoss,
	})
}

// merged counts and settles a message that was merged into a later message about the same object.
func (d *Delivery) merged(older *event.Message) {
	counters := d.Metrics.Of(older)
	counters.Merged.Inc()
	counters.Unqueue(older)
	d.settle(older)
}

// foldGap calls event.FoldGap. It also counts both events. It settles the dropped event if gap already waits.
func (d *Delivery) foldGap(gap, dropped *event.Message) (*event.Message, bool) {
	folded, ok := event.FoldGap(gap, dropped)
	if !ok {
		return nil, false
	}
	counters := d.Metrics.Of(dropped)
	if gap != nil {
		counters.Unqueue(gap)
		d.settle(dropped)
	}
	counters.Queue(folded)
	counters.Dropped.Inc()
	counters.Unqueue(dropped)
	return folded, true
}

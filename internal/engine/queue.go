package engine

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
func (p *pipeline) openQueue(state string) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("state.path: %w", err)
	}
	path := filepath.Join(state, "spill-"+p.Name)
	log, err := p.spillLog(path)
	if err != nil {
		return err
	}
	options := fifo.Options[*event.Message]{
		Path: path, Log: log,
		MaxItems: max(2, p.Buffer.Events), MaxBytes: p.Buffer.Bytes, MaxDiskBytes: p.Buffer.DiskBytes,
		Size:   (*event.Message).Size,
		Encode: func(dst []byte, m *event.Message) ([]byte, error) { return m.AppendStored(dst) },
		Decode: event.ParseStored,
		Mark: func(m *event.Message) (source, position string) {
			if m.Origin.Source == "" {
				return "", ""
			}
			return spillMark(p.user.Load().tracker.ClusterUID(), m.Origin.Source, m.History), m.Origin.Position
		},
		OnSettled: func(messages []*event.Message) {
			for _, m := range messages {
				p.settle(m)
			}
		},
		Receipt: func(m *event.Message) *event.Message { return &event.Message{Origin: m.Origin, History: m.History} },
		OnCorrupt: func(l fifo.Loss) []*event.Message {
			p.unreadable.Add(int64(l.Items()))
			return p.user.Load().lostGaps(l)
		},
		HoldUp: holdUp, Since: (*event.Message).Since,
		Logger: p.log,
	}
	switch p.Buffer.Overflow {
	case Compact:
		options.Key, options.Merge, options.OnMerge = mergeKey, event.Merge, p.merged
	case DropOldest:
		options.Gap = p.foldGap
	}
	queue, err := fifo.New(options)
	if err != nil {
		return err
	}
	p.queue, p.push = queue, queue.Push
	if queue.Stats().Items > 0 {
		p.spilled = queue.Positions()
	}
	return nil
}

// spillLog returns the log in the checkpoint to which the queue spills, or nil if the queue spills to its directory.
func (p *pipeline) spillLog(directory string) (fifo.Log, error) {
	events, err := p.store.Events(p.Name)
	if err != nil {
		return nil, err
	}
	inDirectory := func() bool {
		n, err := fifo.Peek(directory)
		return n > 0 || err != nil
	}
	if p.usesCheckpoint(events.Last() > events.Acked(), inDirectory) {
		return events, nil
	}
	return nil, nil
}

// parkedStorage returns the storage in the checkpoint for parked events, or nil if they are in a file of their own.
func (p *pipeline) parkedStorage(state string) (parked.Storage, error) {
	waiting := false
	events := p.store.Parked(p.Name)
	if err := events.Each("", func(string, []byte) bool { waiting = true; return false }); err != nil {
		return nil, err
	}
	inFile := func() bool {
		_, err := os.Stat(filepath.Join(state, "parked-"+p.Name+".db"))
		return err == nil
	}
	if p.usesCheckpoint(waiting, inFile) {
		return events, nil
	}
	return nil, nil
}

// outside says why a sink's events are not in the state log.
const outside = "an earlier process without a state log has left some; after they are delivered, restart the bridge"

// usesCheckpoint reports whether events that wait on disk are part of the checkpoint. They are if there is a state log.
// But if an earlier process has left events in the other place, this place is used until the next start.
func (p *pipeline) usesCheckpoint(waiting bool, waitingOutside func() bool) bool {
	switch {
	case waiting:
		return true
	case !p.store.HasLog():
		return false
	case waitingOutside():
		p.outside = true
		p.log.Warn("events that wait on disk are not in the state log: " + outside)
		return false
	}
	return true
}

// spillMark returns the name of a source in a spill. Positions of two histories of etcd cannot be compared, so that
// they have two names.
func spillMark(uid, source, history string) string {
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
func (p *pipeline) openParked(state string) (*parked.Store, error) {
	storage, err := p.parkedStorage(state)
	if err != nil {
		return nil, err
	}
	return parked.Open(parked.Options{
		Dir: state, Sink: p.Name, Storage: storage, MaxBytes: p.Buffer.DiskBytes, Logger: p.log,
		Used: func() int64 {
			_, bytes, _, _, _ := p.queue.SpillStats()
			return bytes
		},
		OnLost: func() {
			select {
			case p.parkedLost <- struct{}{}:
			default:
			}
		},
	})
}

// merged counts and settles a message that was merged into a later message about the same object.
func (p *pipeline) merged(older *event.Message) {
	counters := p.metrics.Of(older)
	counters.Merged.Inc()
	counters.Unqueue(older)
	p.settle(older)
}

// foldGap calls event.FoldGap. It also counts both events. It settles the dropped event if gap already waits.
func (p *pipeline) foldGap(gap, dropped *event.Message) (*event.Message, bool) {
	folded, ok := event.FoldGap(gap, dropped)
	if !ok {
		return nil, false
	}
	counters := p.metrics.Of(dropped)
	if gap != nil {
		counters.Unqueue(gap)
		p.settle(dropped)
	}
	counters.Queue(folded)
	counters.Dropped.Inc()
	counters.Unqueue(dropped)
	return folded, true
}

package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

// holdUp is the maximum time that pushes wait for the sink before the queue writes to disk. The wait begins when a
// quarter of the queue's bounds is in use. The maximum is far shorter than the history that the API server keeps, and
// short enough to delay other sinks only slightly.
const holdUp = 250 * time.Millisecond

// diskQueue is a queue that writes messages to disk if they wait for a long time or do not fit into memory.
type diskQueue interface {
	fifo.Queue[*event.Message]
	// Run writes messages to disk until ctx ends, and then all messages that still wait.
	Run(ctx context.Context) error
	// Persist requests that all messages that currently wait be written to disk, which settles them.
	Persist()
	SpillStats() (items, bytes, fileBytes, errors int64, lastErr string)
}

var (
	_ diskQueue = (*fifo.Spill[*event.Message])(nil)
	_ diskQueue = (*fifo.Lossy[*event.Message])(nil)
)

// openQueue creates the queue, which is a Spill. If the overflow policy drops or merges events, it places a queue that
// implements this policy in front of the Spill. The front queue then uses half of the memory.
func (p *pipeline) openQueue(state string) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("state.path: %w", err)
	}
	b := p.Buffer
	half, halfSize := max(1, b.Events/2), b.Bytes/2
	var front fifo.Queue[*event.Message]
	switch b.Overflow {
	case Compact:
		front = fifo.NewCompacting(fifo.CompactingOptions[*event.Message, types.UID]{
			MaxItems: half, MaxBytes: halfSize, Size: (*event.Message).Size,
			Key:       func(m *event.Message) types.UID { return m.Identity.UID },
			Mergeable: event.Mergeable, Merge: event.Merge, OnMerge: p.merged,
		})
	case DropOldest:
		front = fifo.NewRing(fifo.RingOptions[*event.Message]{
			MaxItems: half, MaxBytes: halfSize, Size: (*event.Message).Size,
			Overflow: fifo.DropOldest, Gap: p.foldGap,
		})
	}
	if front != nil {
		b.Events, b.Bytes = b.Events-half, b.Bytes-halfSize
	}
	spill, err := p.openSpill(b, state)
	if p.queue = spill; front != nil && err == nil {
		p.queue = fifo.NewLossy(front, spill)
	}
	return err
}

func (p *pipeline) openSpill(b Buffer, state string) (*fifo.Spill[*event.Message], error) {
	spill, err := fifo.NewSpill(fifo.SpillOptions[*event.Message]{
		Path:     filepath.Join(state, "spill-"+p.Name),
		MaxItems: max(2, b.Events), MaxBytes: b.Bytes, MaxDiskBytes: b.DiskBytes, Size: (*event.Message).Size,
		Encode: func(dst []byte, m *event.Message) ([]byte, error) { return m.AppendStored(dst) },
		Decode: event.ParseStored,
		Mark: func(m *event.Message) (source, position string) {
			if m.Origin.Source == "" {
				return "", ""
			}
			return p.books.ClusterUID() + "/" + m.Origin.Source, m.Origin.Position
		},
		OnSettled: func(messages []*event.Message) {
			for _, m := range messages {
				p.settle(m)
			}
		},
		Receipt: func(m *event.Message) *event.Message { return &event.Message{Origin: m.Origin} },
		OnCorrupt: func(l fifo.Loss) []*event.Message {
			p.unreadable.Add(int64(l.Items()))
			return p.lostGaps(l)
		},
		HoldUp: holdUp, Since: func(m *event.Message) time.Time { return m.Time },
		Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	if spill.Stats().Items > 0 {
		p.spilled = spill.Positions()
	}
	return spill, nil
}

// openParked opens the store of parked events: events whose topic, partition or subject does not accept messages. It
// shares its disk limit with the spill.
func (p *pipeline) openParked(state string) (*parked.Store, error) {
	return parked.Open(parked.Options{
		Dir: state, Sink: p.Name, MaxBytes: p.Buffer.DiskBytes, Logger: p.log,
		Used: func() int64 {
			_, bytes, _, _, _ := p.queue.SpillStats()
			return bytes
		},
	})
}

// merged counts and settles a message that was merged into a later message about the same object.
func (p *pipeline) merged(older *event.Message) {
	p.metrics.Merge(older)
	p.settle(older)
}

// foldGap calls event.FoldGap. It also counts both events. It settles the dropped event if gaps has a gap event for it.
func (p *pipeline) foldGap(gaps []*event.Message, dropped *event.Message) []*event.Message {
	same := func(g *event.Message) bool { return event.FoldsInto(g, dropped) }
	counters := p.metrics.Of(dropped)
	if n := slices.IndexFunc(gaps, same); n >= 0 {
		counters.Unqueue(gaps[n])
		p.settle(dropped)
	}
	gaps = event.FoldGap(gaps, dropped)
	counters.Queue(gaps[slices.IndexFunc(gaps, same)])
	p.metrics.Drop(dropped)
	return gaps
}

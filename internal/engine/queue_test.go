package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// countingLog is a log of which nothing is read.
type countingLog struct{ n uint64 }

func (*countingLog) Sync() error { return nil }

func (l *countingLog) Append([]statelog.Pair) (statelog.Point, error) {
	l.n++
	return statelog.Point{Number: l.n, Own: true}, nil
}

// spillOnce is a process that takes what an earlier process has left on disk, and leaves a spilled event and a parked
// event, unless id is empty. It returns the ids of the events that it found.
func spillOnce(t *testing.T, state, id string, log checkpoint.Log) (spilled, parkedIDs []string) {
	t.Helper()
	store, err := checkpoint.Open(checkpoint.Options{Path: state, Log: log, NoSync: true})
	if err == nil {
		err = store.TakeOver()
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := fifo.Peek(filepath.Join(state, "spill-lines"))
	if err != nil {
		t.Fatal(err)
	}
	e := engineOf(t, store, state, map[string]sinks.Sink{"lines": stdout.New(io.Discard)})
	reasons, _ := e.Readiness()
	named, want := strings.Contains(strings.Join(reasons, "\n"), delivery.WhyOutside), log != nil && before > 0
	if named != want {
		t.Errorf("%d events in files, not ready because of them: %t, want %t: %v", before, named, want, reasons)
	}
	p := e.pipelines[0]
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Queue.Run(ctx) }()
	for n := p.Queue.Stats().Items; len(spilled) < n; {
		batch, err := p.Queue.Take(ctx, nil, 10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			spilled = append(spilled, m.ID)
		}
		p.Queue.Ack(len(batch))
	}
	head, err := p.Drain.Parked.Head("part", 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range head {
		parkedIDs = append(parkedIDs, entry.Message.ID)
		if err := p.Drain.Parked.Remove("part", []uint64{entry.Number}); err != nil {
			t.Fatal(err)
		}
	}
	if m := (&event.Message{ID: id, Time: time.Now()}); id != "" {
		err := p.Queue.Push(ctx, m)
		if err = errors.Join(err, p.Drain.Parked.Park([]parked.Parking{{Destination: "part", Message: m}})); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	endEngine(t, e)
	return spilled, parkedIDs
}

// With a state log, the events that wait on disk are part of the checkpoint, otherwise they have files of their own. If
// a process finds events of an earlier process in the other place, it delivers them, and its own events follow them
// there.
func TestEventsInTheCheckpoint(t *testing.T) {
	type process struct {
		log    bool
		id     string // of the event that it leaves; empty if it leaves none
		inFile bool   // whether this event is in a file of its own
	}
	for name, processes := range map[string][]process{
		"never":        {{false, "a", true}, {false, "b", true}, {false, "", false}},
		"always":       {{true, "a", false}, {true, "b", false}, {true, "", false}},
		"switched on":  {{false, "a", true}, {true, "b", true}, {true, "", false}, {true, "c", false}, {true, "", false}},
		"switched off": {{true, "a", false}, {false, "b", false}, {false, "", false}, {false, "c", true}, {false, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			var left []string
			for n, p := range processes {
				var log checkpoint.Log
				if p.log {
					log = &countingLog{n: 100 * uint64(n)}
				}
				spilled, parkedIDs := spillOnce(t, state, p.id, log)
				if !slices.Equal(spilled, left) || !slices.Equal(parkedIDs, left) {
					t.Errorf("process %d found %v spilled and %v parked, want %v", n, spilled, parkedIDs, left)
				}
				if left = nil; p.id != "" {
					left = []string{p.id}
				}
				inFiles, err := fifo.Peek(filepath.Join(state, "spill-lines"))
				if err != nil {
					t.Fatal(err)
				}
				_, err = os.Stat(filepath.Join(state, "parked-lines.db"))
				if p.inFile != (inFiles > 0) || p.inFile != (err == nil) {
					t.Errorf("process %d: %d events in files, %v", n, inFiles, err)
				}
			}
		})
	}
}

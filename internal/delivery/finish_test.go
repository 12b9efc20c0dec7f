package delivery

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// slowSink takes one event at a time, each of which takes a while. It can be away from the start, and can hang.
type slowSink struct {
	away    error
	connect time.Duration
	each    time.Duration
	hangs   bool
}

func (s *slowSink) Connect(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.connect):
		return s.away
	}
}
func (s *slowSink) Close(context.Context) error { return nil }
func (s *slowSink) Part(*event.Message) string  { return "" }

func (s *slowSink) Send(ctx context.Context, batch []*event.Message, results []error) {
	if s.hangs {
		<-ctx.Done()
	}
	for n := range batch {
		switch {
		case ctx.Err() != nil:
			results[n] = ctx.Err()
		case n > 0:
			results[n] = sinks.ErrNotAttempted
		default:
			time.Sleep(s.each)
		}
	}
}

// open opens a delivery, which the test closes.
func open(t *testing.T, sink sinks.Sink, disconnect func(context.Context) error) *Delivery {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	store, err := checkpoint.Open(checkpoint.Options{Path: dir, ClusterName: "c", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Options{
		Sink: "test", Cluster: "c", State: dir, Buffer: Buffer{Events: 100, Bytes: 1 << 20, Overflow: Block},
		Destination: sink, Disconnect: disconnect, Store: store, Metrics: metrics.New("", "").ForSink("test"), Logger: log,
	})
	positions := tracker.New(tracker.Options{Store: store, Reading: t.Context(), Logger: log})
	d.Use(User{
		Tracker: positions, Settle: func(*event.Message) {},
		Progress: func() ([]*event.Message, time.Duration) { return nil, 0 },
	})
	if err := d.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// withTenEvents returns a delivery that delivers ten events to a sink.
func withTenEvents(t *testing.T, sink sinks.Sink, paused bool) *Delivery {
	t.Helper()
	d := open(t, sink, func(context.Context) error { return nil })
	d.Drain.MaxBatch = 1
	if paused {
		d.Drain.Pause(time.Now())
	}
	for n := range 10 {
		m := &event.Message{Type: event.Updated, Time: time.Now()}
		m.Identity.UID = types.UID(strconv.Itoa(n))
		if err := d.Queue.Push(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	d.Start()
	time.Sleep(time.Millisecond)
	return d
}

// During the shutdown, a sink that accepts events may continue until shutdownTimeout. The engine does not wait for a
// sink that accepts none.
func TestFinish(t *testing.T) {
	for name, test := range map[string]struct {
		sink    *slowSink
		timeout time.Duration
		took    time.Duration // at most
		left    bool
		paused  bool
	}{
		"takes what is queued": {&slowSink{each: stalled / 2}, time.Hour, 20 * stalled / 2, false, false},
		"takes too long":       {&slowSink{each: stalled / 2}, 3 * time.Second, 3*time.Second + stalled, true, false},
		"is away":              {&slowSink{away: errors.New("away")}, time.Hour, 0, true, false},
		"hangs":                {&slowSink{hangs: true}, time.Hour, stalled + progressTick, true, false},
		"connects":             {&slowSink{connect: stalled / 2}, time.Hour, stalled, false, false},
		"hangs at the start":   {&slowSink{connect: time.Hour}, time.Hour, stalled + progressTick, true, false},
		"is paused":            {&slowSink{}, time.Hour, 0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := withTenEvents(t, test.sink, test.paused)
				began := time.Now()
				if err := Finish([]*Delivery{d}, test.timeout); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > test.took {
					t.Errorf("took %s, want at most %s", took, test.took)
				}
				if left := d.Queue.Stats().Items > 0; left != test.left {
					t.Errorf("%+v", d.Queue.Stats())
				}
				Close([]*Delivery{d})
			})
		})
	}
}

// The chart's grace period leaves 15 seconds for the steps after the delivery, regardless of how many sinks hang.
func TestSinksCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*Delivery
		for range 5 {
			all = append(all, open(t, &slowSink{}, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		}
		began := time.Now()
		Close(all)
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("took %s, want %s", took, closeTimeout)
		}
	})
}

package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// slowSink takes one event at a time, each of which takes a while. It can be away from the start.
type slowSink struct {
	away error
	each time.Duration
}

func (s *slowSink) Connect(context.Context) error { return s.away }
func (s *slowSink) Close(context.Context) error   { return nil }
func (s *slowSink) Part(*event.Message) string    { return "" }

func (s *slowSink) Send(ctx context.Context, batch []*event.Message, results []error) {
	results[0] = ctx.Err()
	for n := range batch[1:] {
		results[n+1] = sinks.ErrNotAttempted
	}
	time.Sleep(s.each)
}

// If the process is stopped while a change waits for room in the queue of one sink, the change is not lost for that
// sink.
func TestAStopWhileASinkHoldsUpTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := pipelineFor(t, delivery.Buffer{Events: 2, Bytes: 1 << 20, DiskBytes: 1, Overflow: delivery.Block})
		l := listen(ctx, p)
		handed := 0
		go func() {
			for ; ctx.Err() == nil; handed++ {
				l.OnUpdate(pod(t, handed, "Running"), pod(t, handed+1, "Running"))
			}
		}()
		time.Sleep(time.Minute)
		if p.Queue.Stats().Blocked == 0 {
			t.Fatal("no push had to wait")
		}
		e := &Engine{pipelines: []*pipeline{p}, stopReading: cancel}
		e.endReading()
		synctest.Wait()
		if items := p.Queue.Stats().Items; items != handed || p.Abandoned.Load() > 0 {
			t.Errorf("%d of %d changes are in the queue, %d were given up", items, handed, p.Abandoned.Load())
		}
	})
}

// An engine that must not read any more delivers all waiting events, unless Linger is closed before.
func TestLinger(t *testing.T) {
	for name, test := range map[string]struct {
		sink *slowSink
		left bool
	}{
		"delivers everything": {&slowSink{each: time.Second}, false},
		"Linger is closed":    {&slowSink{each: time.Minute}, true},
		"is away":             {&slowSink{away: errors.New("away")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, linger := pipelineFor(
					t,
					delivery.Buffer{Events: 100, Bytes: 1 << 20, Overflow: delivery.Block},
				), make(
					chan struct{},
				)
				p.Drain.Sink, p.Drain.MaxBatch = test.sink, 1
				l := listen(t.Context(), p)
				for n := range 10 {
					l.OnUpdate(pod(t, n, "Running"), pod(t, n+1, "Running"))
				}
				ctx, stop := context.WithCancel(t.Context())
				drained := make(chan error, 1)
				go func() { drained <- p.Drain.Run(ctx) }()
				time.AfterFunc(time.Minute, func() { close(linger) })
				e := &Engine{options: Options{Linger: linger}, pipelines: []*pipeline{p}}
				began := time.Now()
				e.linger()
				if took := time.Since(began); took >= time.Minute != test.left {
					t.Errorf("took %s", took)
				}
				if left := p.Queue.Stats().Items > 0; left != test.left {
					t.Errorf("%+v", p.Queue.Stats())
				}
				stop()
				<-drained //nolint:errcheck // it was stopped
			})
		})
	}
}

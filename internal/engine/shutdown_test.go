package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// If the process is stopped while a change waits for room in the queue of one sink, the change is not lost for that
// sink.
func TestAStopWhileASinkHoldsUpTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := pipelineFor(t, Buffer{Events: 2, Bytes: 1 << 20, DiskBytes: 1, Overflow: Block})
		l := listen(ctx, p)
		handed := 0
		go func() {
			for ; ctx.Err() == nil; handed++ {
				l.OnUpdate(pod(t, handed, "Running"), pod(t, handed+1, "Running"))
			}
		}()
		time.Sleep(time.Minute)
		if p.queue.Stats().Blocked == 0 {
			t.Fatal("no push had to wait")
		}
		e := &Engine{pipelines: []*pipeline{p}, stopReading: cancel}
		e.endReading()
		synctest.Wait()
		if items := p.queue.Stats().Items; items != handed || p.abandoned.Load() > 0 {
			t.Errorf("%d of %d changes are in the queue, %d were given up", items, handed, p.abandoned.Load())
		}
	})
}

// withTenEvents returns a pipeline that delivers ten events to a sink.
func withTenEvents(t *testing.T, sink sinks.Sink, paused bool) *pipeline {
	t.Helper()
	p := pipelineFor(t, Buffer{Events: 100, Bytes: 1 << 20, Overflow: Block})
	parking, err := p.openParked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p.drain = &sinks.Drain{Sink: sink, Queue: p.queue, MaxBatch: 1, Parked: parking, Logger: p.log}
	if paused {
		p.drain.Pause(time.Now())
	}
	l := listen(t.Context(), p)
	for n := range 10 {
		l.OnUpdate(pod(t, n, "Running"), pod(t, n+1, "Running"))
	}
	go func() {
		defer close(p.drained)
		_ = p.drain.Run(p.delivering)
	}()
	time.Sleep(time.Millisecond)
	return p
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
				p, linger := withTenEvents(t, test.sink, false), make(chan struct{})
				time.AfterFunc(time.Minute, func() { close(linger) })
				e := &Engine{options: Options{Linger: linger}, pipelines: []*pipeline{p}}
				began := time.Now()
				e.linger()
				if took := time.Since(began); took >= time.Minute != test.left {
					t.Errorf("took %s", took)
				}
				if left := p.queue.Stats().Items > 0; left != test.left {
					t.Errorf("%+v", p.queue.Stats())
				}
				p.stop()
				<-p.drained
			})
		})
	}
}

// During the shutdown, a sink that accepts events may continue until shutdownTimeout. The engine does not wait for a
// sink that accepts none.
func TestFinishDelivery(t *testing.T) {
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
				p := withTenEvents(t, test.sink, test.paused)
				began := time.Now()
				finishDelivery([]*pipeline{p}, test.timeout)
				if took := time.Since(began); took > test.took {
					t.Errorf("took %s, want at most %s", took, test.took)
				}
				if left := p.queue.Stats().Items > 0; left != test.left {
					t.Errorf("%+v", p.queue.Stats())
				}
			})
		})
	}
}

// The chart's grace period leaves 15 seconds for the steps after the delivery, regardless of how many sinks hang.
func TestSinksCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pipelines []*pipeline
		for range 5 {
			p := pipelineFor(t, roomy)
			parking, err := p.openParked(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			p.drain = &sinks.Drain{Sink: &slowSink{}, Queue: p.queue, Parked: parking, Logger: p.log}
			p.Disconnect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			pipelines = append(pipelines, p)
		}
		began := time.Now()
		closeSinks(pipelines)
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("took %s, want %s", took, closeTimeout)
		}
	})
}

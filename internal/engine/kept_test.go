package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// gatedSink counts connections and delivers what it is given once it is open.
type gatedSink struct {
	open                        chan struct{}
	connected, closed, received atomic.Int64
}

func newGatedSink() *gatedSink { return &gatedSink{open: make(chan struct{})} }

func (s *gatedSink) Connect(context.Context) error { s.connected.Add(1); return nil }
func (s *gatedSink) Close(context.Context) error   { s.closed.Add(1); return nil }
func (s *gatedSink) Part(*event.Message) string    { return "" }

func (s *gatedSink) Send(ctx context.Context, batch []*event.Message, results []error) {
	select {
	case <-s.open:
		s.received.Add(int64(len(batch)))
	case <-ctx.Done():
		for n := range batch {
			results[n] = ctx.Err()
		}
	}
}

// replacing is an engine that is replaced, and its sinks.
type replacing struct {
	t     *testing.T
	o     Options
	e     *Engine
	ended chan error
	sinks map[string]*gatedSink
	stop  context.CancelFunc
}

func startReplacing(t *testing.T, names ...string) *replacing {
	t.Helper()
	state := t.TempDir()
	r := &replacing{t: t, sinks: map[string]*gatedSink{}, o: Options{
		Cluster: "c", State: state, Store: openStore(t, state), Metrics: metrics.New("", ""), ShutdownTimeout: time.Second,
		Kube: &rest.Config{Host: "https://127.0.0.1:1"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	for _, name := range names {
		r.sinks[name] = newGatedSink()
	}
	r.start(nil, names...)
	t.Cleanup(func() { _ = r.o.Store.Close() })
	return r
}

// start starts an engine with new destinations for the sinks.
func (r *replacing) start(kept *Kept, names ...string) {
	r.t.Helper()
	r.o.Kept, r.o.Sinks = kept, nil
	for _, name := range names {
		destination := r.sinks[name]
		if destination == nil {
			destination = newGatedSink()
		}
		r.o.Sinks = append(r.o.Sinks, Sink{
			Name: name, Encoder: &event.Encoder{}, Destination: destination, Buffer: roomy, Disconnect: destination.Close,
		})
	}
	var err error
	if r.e, err = New(r.o); err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan error, 1)
	go func() { r.ended <- r.e.Run(ctx) }()
}

func (r *replacing) end() {
	r.t.Helper()
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
}

// update sends each sink an update with the resourceVersion, after an initial list if there was none. finished sinks
// have the whole list.
func (r *replacing) update(resourceVersion int, finished ...string) {
	r.t.Helper()
	source := informer.Source{Name: "pods", Resource: pods}
	if r.e.tracker.Ledger("pods") == nil {
		r.e.tracker.Resume(source)
	}
	to := r.e.tracker.Ledger("pods")
	for _, name := range finished {
		to.FinishList(name)
	}
	for _, p := range r.e.pipelines {
		l := newListener(r.t.Context(), p, source, to, "1")
		l.OnUpdate(pod(r.t, resourceVersion-1, "Running"), pod(r.t, resourceVersion, "Running"))
	}
	to.Advance(pod(r.t, resourceVersion, "").ResourceVersion)
}

func (r *replacing) await(what string, done func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("never: " + what)
		}
	}
}

// A sink that is kept does not notice that the engine is replaced: it stays connected and goes on sending. What waits
// for it is on disk, so that the checkpoint is where reading has ended. Another sink starts again.
func TestKeptDelivery(t *testing.T) {
	r := startReplacing(t, "kept", "changed")
	kept, changed := r.sinks["kept"], r.sinks["changed"]
	r.update(7, "kept", "changed")
	r.await("both sinks send", func() bool {
		return r.e.pipelines[0].Queue.Stats().Taken == 1 && r.e.pipelines[1].Queue.Stats().Taken == 1
	})
	r.e.Replace(func(sink string) bool { return sink == "kept" })
	r.end()
	if n := r.e.Undelivered(); n["changed"] != 1 || len(n) != 1 {
		t.Errorf("undelivered: %v", n)
	}
	if kept.closed.Load() != 0 || changed.closed.Load() != 1 {
		t.Errorf("closed: %d and %d times", kept.closed.Load(), changed.closed.Load())
	}
	states, err := r.o.Store.States()
	if err != nil || len(states) != 1 || states[0].ResourceVersion != "7" {
		t.Errorf("%+v, %v", states, err)
	}
	r.sinks = map[string]*gatedSink{}
	r.start(r.e.Kept(), "changed", "kept", "new")
	if floor := r.e.tracker.Resume(informer.Source{Name: "pods", Resource: pods}).At; floor != "7" {
		t.Errorf("the next engine resumes at %q", floor)
	}
	r.update(8)
	close(kept.open)
	r.await("both events are delivered", func() bool { return kept.received.Load() == 2 })
	r.await("they are settled", func() bool { n, _ := r.e.tracker.Unsettled("kept"); return n == 0 })
	if now := r.e.pipelines[1].Drain.Sink.(*sinks.Guard).Sink; kept.connected.Load() != 1 || now != sinks.Sink(kept) {
		t.Errorf("connected %d times, to %v", kept.connected.Load(), now)
	}
	if n := r.e.pipelines[0].Queue.Stats().Items; n != 2 {
		t.Errorf("%d events wait for the sink that was changed", n)
	}
	r.stop()
	r.end()
	if kept.closed.Load() != 1 {
		t.Errorf("closed %d times", kept.closed.Load())
	}
}

// A sink that has only a part of a list is not kept, because only the beginning of the list is known to the next
// engine. Neither is a sink whose events cannot be settled.
func TestNotKept(t *testing.T) {
	r := startReplacing(t, "part", "introduced")
	r.update(7, "introduced")
	r.e.pipelines[1].Introducing.Store(true)
	began := time.Now()
	r.e.Replace(func(string) bool { return true })
	r.end()
	if n := r.e.Undelivered(); n["part"] != 1 || n["introduced"] != 1 {
		t.Errorf("undelivered: %v", n)
	}
	if took := time.Since(began); took >= persistTimeout {
		t.Errorf("took %s", took)
	}
	if err := r.e.Kept().Close(); err != nil {
		t.Error(err)
	}
}

// What was kept is closed if no engine continues it, and its events are on disk.
func TestKeptClose(t *testing.T) {
	r := startReplacing(t, "kept")
	r.update(7, "kept")
	r.e.Replace(func(string) bool { return true })
	r.end()
	if err := r.e.Kept().Close(); err != nil {
		t.Error(err)
	}
	if closed := r.sinks["kept"].closed.Load(); closed != 1 {
		t.Errorf("closed %d times", closed)
	}
	r.start(nil, "kept")
	if n := r.e.pipelines[0].Queue.Stats().Items; n != 1 {
		t.Errorf("%d events are on disk", n)
	}
	r.stop()
	r.end()
}

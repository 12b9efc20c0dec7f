package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// routed is a sink with a topic for each resource, and for some of them a partition for each first letter of a name.
type routed struct {
	*scriptSink
	prefix  string          // of the names of all parts, which down does not have
	divided map[string]bool // topics with partitions
	mu      sync.Mutex      // guards what Send uses
	down    map[string]error
}

func (r *routed) Send(ctx context.Context, batch []*event.Message, results []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scriptSink.Send(ctx, batch, results)
}

// set makes a part fail with err. If err is nil, the part takes events again.
func (r *routed) set(part string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[part] = err
}

// stored is what the destination has.
func (r *routed) stored() []*event.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.broker)
}

func (r *routed) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scriptSink.ids()
}

// sent is how often Send was called.
func (r *routed) sent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sends
}

func (r *routed) Part(m *event.Message) string {
	topic := m.Resource.Resource
	if !r.divided[topic] || m.Identity.Name == "" {
		return r.prefix + topic
	}
	return r.prefix + topic + "/" + m.Identity.Name[:1]
}

func newRouted() *routed {
	r := &routed{scriptSink: &scriptSink{}, divided: map[string]bool{}, down: map[string]error{}}
	r.send = func(_ context.Context, m *event.Message) error {
		part := r.Part(m)
		topic, _, _ := strings.Cut(part, "/")
		for _, name := range []string{topic, part} {
			if err := r.down[strings.TrimPrefix(name, r.prefix)]; err != nil {
				return sinks.Unavailable(name, err)
			}
		}
		return nil
	}
	return r
}

var errNoTopic = sinks.Rejected(errors.New("the topic does not exist"))

// of is a message of another resource.
func of(resource string, m *event.Message) *event.Message {
	m.Resource = schema.GroupVersionResource{Version: "v1", Resource: resource}
	m.ID = resource + "." + m.ID
	return m
}

func openParked(t *testing.T, dir string, maxBytes int64) *parked.Store {
	t.Helper()
	s, err := parked.Open(parked.Options{Dir: dir, Sink: "live", MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// noneParked is a store for a Drain that parks nothing.
func noneParked(t *testing.T) *parked.Store { return openParked(t, t.TempDir(), 0) }

// running runs a Drain in the bubble.
func running(t *testing.T, d *sinks.Drain) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

// registered is a routed sink whose names of clusters are in a topic that takes nothing for a while.
type registered struct {
	*routed
	err error // guarded by mu
}

func (r *registered) setRegister(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *registered) Destination() string { return "the topics" }
func (r *registered) Register(context.Context, sinks.Owner, string) error {
	return nil
}

func (r *registered) Registered(context.Context, string) (sinks.Registration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sinks.Registration{UID: "k1"}, r.err
}

// If a destination takes no events, and the error names no part that the event belongs to, the whole destination is
// unavailable: the status and the metric show this, it is logged once, and nothing is parked.
func TestUnavailableWithoutAPart(t *testing.T) {
	for _, named := range []string{"", "another", "config"} {
		t.Run(named, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := openParked(t, t.TempDir(), 0)
				sink, away := newRouted(), true
				sink.send = func(context.Context, *event.Message) error {
					if away {
						return sinks.Unavailable(named, errors.New("no room"))
					}
					return nil
				}
				log, text := logged()
				failures := 0
				d := &sinks.Drain{
					Sink: sink, Queue: queueOf(t, message("a", 1), message("b", 1)), Parked: store, Logger: log,
					Hooks: sinks.Hooks{OnRetry: func(*event.Message) { failures++ }},
				}
				stop := running(t, d)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				_, cause := d.Failure()
				if status := d.Status(); !strings.Contains(status, "retrying since") || !strings.Contains(status, "no room") ||
					cause == nil {
					t.Errorf("status: %s", status)
				}
				if n := strings.Count(text.String(), "no room"); n != 1 || failures == 0 || !store.Empty() {
					t.Errorf("logged %d times, %d failures, parked: %v", n, failures, !store.Empty())
				}
				sink.mu.Lock()
				away = false
				sink.mu.Unlock()
				time.Sleep(time.Second)
				synctest.Wait()
				if got := sink.ids(); len(got) != 2 || d.Status() != "ok" {
					t.Errorf("delivered %v; %s", got, d.Status())
				}
				_ = stop()
			})
		})
	}
}

// A guard does not hide that its sink has parts. While the names of clusters can't be read, nothing is sent and nothing
// is parked, because that is not a failure of one part.
func TestAGuardedSinkHasParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &registered{routed: newRouted()}
		sink.down["services"] = errNoTopic
		sink.err = sinks.Unavailable("services", errNoTopic)
		owner := sinks.Owner{Cluster: "prod"} // its uid is not known while the sink connects
		guard := &sinks.Guard{Sink: sink, Name: "live", Owner: func() sinks.Owner { return owner }, Logger: toTest(t)}
		store, q := openParked(t, t.TempDir(), 0), queueOf(t)
		d := &sinks.Drain{Sink: guard, Queue: q, Logger: toTest(t), Parked: store}
		stop := running(t, d)
		synctest.Wait()
		owner.UID = "k1"
		_ = q.Push(t.Context(), of("services", message("s", 1)))
		_ = q.Push(t.Context(), message("a", 1))
		time.Sleep(10 * time.Second)
		if len(d.Unavailable()) != 0 || len(sink.ids()) != 0 || q.Stats().Items != 2 {
			t.Errorf("before the name is known: parked %+v, sent %v, %d wait", d.Unavailable(), sink.ids(), q.Stats().Items)
		}
		sink.setRegister(nil)
		time.Sleep(time.Minute)
		if len(d.Unavailable()) != 1 || len(sink.ids()) != 1 || q.Stats().Items != 0 {
			t.Errorf("then: parked %+v, sent %v, %d wait", d.Unavailable(), sink.ids(), q.Stats().Items)
		}
		owner.UID = "k2" // the name belongs to k1
		_ = q.Push(t.Context(), message("a", 2))
		time.Sleep(time.Minute)
		if _, err := d.Failure(); !errors.Is(err, sinks.ErrNameTaken) || len(sink.ids()) != 1 {
			t.Errorf("without the name: %v, sent %v", err, sink.ids())
		}
		_ = stop()
	})
}

// A topic that does not exist does not delay other events, not even for a moment. When the topic exists, its events are
// delivered in order and before newer ones, even after a restart.
func TestAMissingTopicStopsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sink := newRouted()
		sink.down["services"] = errNoTopic
		store := openParked(t, dir, 0)
		q := queueOf(t)
		d := &sinks.Drain{Sink: sink, Queue: q, Logger: toTest(t), Parked: store}
		stop := running(t, d)
		var want []string
		for i := range 200 {
			m := message(fmt.Sprint("pod", i%20), i/20+1)
			want = append(want, m.ID)
			_ = q.Push(t.Context(), m)
			if i%50 == 0 {
				_ = q.Push(t.Context(), of("services", message("s", i/50+1)))
			}
		}
		synctest.Wait()
		got := sink.ids()
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("meanwhile (-want +got):\n%s", diff)
		}
		if n := q.Stats().Items; n != 0 {
			t.Errorf("%d in the queue", n)
		}
		parts := d.Unavailable()
		if len(parts) != 1 || parts[0].Destination != "services" || parts[0].Events != 4 ||
			!strings.Contains(parts[0].Cause.Error(), "does not exist") {
			t.Errorf("unavailable: %+v", parts)
		}
		if !strings.Contains(d.Status(), "services") || !strings.HasPrefix(d.Status(), "ok") {
			t.Errorf("status %q", d.Status())
		}
		time.Sleep(time.Hour)
		sends := sink.sent()
		time.Sleep(time.Minute)
		if n := sink.sent() - sends; n < 3 || n > 20 {
			t.Errorf("%d attempts in a minute", n)
		}
		_ = stop()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}

		store = openParked(t, dir, 0)
		q = queueOf(t, of("services", message("s", 5)), message("late", 1))
		d = &sinks.Drain{Sink: sink, Queue: q, Logger: toTest(t), Parked: store}
		stop = running(t, d)
		synctest.Wait()
		if got := sink.ids(); got[len(got)-1] != "late.1" || !store.Holds("services") {
			t.Errorf("after the restart: %v", got[len(got)-1])
		}
		time.Sleep(time.Minute)
		sink.set("services", nil)
		time.Sleep(15 * time.Second)
		_ = q.Push(t.Context(), of("services", message("s", 6)))
		synctest.Wait()
		got = sink.ids()
		if diff := cmp.Diff(
			[]string{"services.s.1", "services.s.2", "services.s.3", "services.s.4", "services.s.5", "services.s.6"},
			got[len(got)-6:],
		); diff != "" {
			t.Errorf("parked events (-want +got):\n%s", diff)
		}
		if !store.Empty() || d.Status() != "ok" {
			t.Errorf("afterwards: %s", d.Status())
		}
		_ = stop()
	})
}

// The drain waits for a partition that elects a leader, but not for a partition that has no leader for long. If the
// whole destination is unavailable, nothing is parked, and the partitions then have the same time to elect leaders.
func TestWhatPassesIsNotParked(t *testing.T) {
	for _, c := range []struct {
		name   string
		part   string
		down   time.Duration
		whole  time.Duration // how long the other parts are down
		parked bool
	}{
		{"election", "configmaps/a", time.Second, 0, false},
		{"no leader", "configmaps/a", time.Minute, 0, true},
		{"away", "", time.Hour, 0, false},
		{"away, then an election", "configmaps/a", 10 * time.Second, 9 * time.Second, false},
		{"away, then no leader", "configmaps/a", time.Minute, 7 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := newRouted()
				sink.divided["configmaps"] = true
				start := time.Now()
				route := sink.send
				sink.send = func(ctx context.Context, m *event.Message) error {
					if time.Since(start) > c.down {
						delete(sink.down, c.part)
					} else if c.part == "" || time.Since(start) < c.whole && sink.Part(m) != c.part {
						return errAway
					} else {
						sink.down[c.part] = errors.New("no leader")
					}
					return route(ctx, m)
				}
				store := openParked(t, t.TempDir(), 0)
				q := queueOf(t, message("a", 1), message("b", 1), message("a", 2), message("b", 2))
				stop := running(t, &sinks.Drain{Sink: sink, Queue: q, Logger: toTest(t), Parked: store})
				time.Sleep(min(c.down, 10*time.Second) - time.Millisecond)
				if store.Holds(c.part) != c.parked {
					t.Errorf("parked: %v", !c.parked)
				}
				if c.parked && len(sink.stored()) != 2 {
					t.Errorf("meanwhile: %v", sink.ids())
				}
				time.Sleep(2 * time.Hour)
				if diff := cmp.Diff(
					map[string][]string{"a": {"a.1", "a.2"}, "b": {"b.1", "b.2"}},
					sequences(sink.stored()),
				); diff != "" {
					t.Errorf("at last (-want +got):\n%s", diff)
				}
				_ = stop()
			})
		})
	}
}

// A control event is delivered after all earlier events of its resource, wherever they are parked, and does not wait
// for other resources.
func TestControlEventsComeAfterWhatIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newRouted()
		sink.divided["configmaps"] = true
		sink.down["configmaps/a"] = errNoTopic
		store := openParked(t, t.TempDir(), 0)
		gap := func(resource string) *event.Message {
			m := of(resource, message("", 0))
			m.Type, m.ID = event.Gap, resource+".gap"
			return m
		}
		q := queueOf(t, message("a", 1), message("b", 1), gap("configmaps"), gap("pods"), message("b", 2))
		stop := running(t, &sinks.Drain{Sink: sink, Queue: q, Logger: toTest(t), Parked: store})
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"b.1", "pods.gap"}, sink.ids()); diff != "" {
			t.Errorf("meanwhile (-want +got):\n%s", diff)
		}
		sink.set("configmaps/a", nil)
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"b.1", "pods.gap", "a.1", "configmaps.gap", "b.2"}, sink.ids()); diff != "" {
			t.Errorf("at last (-want +got):\n%s", diff)
		}
		_ = stop()
	})
}

// Without room for parked events, events wait in the sink's queue until their part takes events again. Parked and
// waiting events are delivered in order, even if the spill has left no room for parked events at all.
func TestNoRoomForParkedEvents(t *testing.T) {
	for name, spilled := range map[string]int64{"room for some": 0, "room for none": 2000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := newRouted()
				sink.down["services"] = errNoTopic
				store, err := parked.Open(parked.Options{
					Dir: t.TempDir(), Sink: "live", MaxBytes: 2000, Used: func() int64 { return spilled },
				})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = store.Close() }()
				q := queueOf(t)
				var want []string
				for i := range 30 {
					m := of("services", message("s", i+1))
					want = append(want, m.ID)
					_ = q.Push(t.Context(), m)
				}
				d := &sinks.Drain{Sink: sink, Queue: q, MaxBatch: 2, Logger: toTest(t), Parked: store}
				stop := running(t, d)
				time.Sleep(time.Hour)
				n := q.Stats().Items
				if n == 0 || (n == 30) != (spilled > 0) || !strings.Contains(d.Status(), "maxBytes") {
					t.Errorf("%d in the queue, status %q", n, d.Status())
				}
				sink.set("services", nil)
				time.Sleep(time.Minute)
				if diff := cmp.Diff(want, sink.ids()); diff != "" {
					t.Errorf("at last (-want +got):\n%s", diff)
				}
				_ = stop()
			})
		})
	}
}

// The spill leaves no room for parked events. The drain continues to try events that could not be parked.
func TestSpillLeavesNoRoomForParkedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newRouted()
		sink.down["services"] = errNoTopic
		store, err := parked.Open(parked.Options{
			Dir: t.TempDir(), Sink: "live", MaxBytes: 2000, Used: func() int64 { return 2000 },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		q := queueOf(t)
		var want []string
		for i := range 5 {
			m := of("services", message("s", i+1))
			want = append(want, m.ID)
			_ = q.Push(t.Context(), m)
		}
		d := &sinks.Drain{Sink: sink, Queue: q, MaxBatch: 2, Logger: toTest(t), Parked: store}
		stop := running(t, d)
		time.Sleep(time.Hour)
		sink.set("services", nil)
		time.Sleep(time.Minute)
		if diff := cmp.Diff(want, sink.ids()); diff != "" {
			t.Errorf("at last (-want +got):\n%s", diff)
		}
		_ = stop()
	})
}

// Over random failures of topics, partitions and of the whole destination, and over restarts, each object keeps its
// order and nothing is missing.
func TestParkingRandomFailures(t *testing.T) {
	for seed := range uint64(scale.Of(3, 12)) {
		synctest.Test(t, func(t *testing.T) {
			r, fate := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
			dir := t.TempDir()
			sink := newRouted()
			sink.divided["configmaps"] = true
			parts := []string{"configmaps", "configmaps/a", "configmaps/b", "services", "secrets"}
			route := sink.send
			sink.send = func(ctx context.Context, m *event.Message) error {
				if fate.IntN(10) == 0 {
					return errAway
				}
				return route(ctx, m)
			}
			want := map[string][]string{}
			version := map[string]int{}
			var backlog []*event.Message // what a crash brings again: not acknowledged
			for range 6 {
				sink.prefix = []string{"", "new-"}[r.IntN(2)] // a changed configuration
				store := openParked(t, dir, 0)
				q := sinktest.Queue(t, 1000)
				for _, m := range backlog {
					_ = q.Push(t.Context(), m)
				}
				log, _ := logged()
				stop := running(t, &sinks.Drain{Sink: sink, Queue: q, MaxBatch: 1 + r.IntN(16), Logger: log, Parked: store})
				for range 60 {
					part := parts[r.IntN(len(parts))]
					if r.IntN(3) == 0 {
						sink.set(part, []error{errNoTopic, errors.New("no leader")}[r.IntN(2)])
					} else {
						sink.set(part, nil)
					}
					resource := []string{"configmaps", "services", "secrets"}[r.IntN(3)]
					name := []string{"a1", "a2", "b1", "c1"}[r.IntN(4)]
					version[resource+name]++
					m := of(resource, message(name, version[resource+name]))
					key := resource + "." + name
					want[key] = append(want[key], m.ID)
					backlog = append(backlog, m)
					_ = q.Push(t.Context(), m)
					time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				}
				_ = stop()
				backlog = backlog[int(q.Stats().Acked):]
				_ = store.Close()
			}
			clear(sink.down)
			store := openParked(t, dir, 0)
			q := sinktest.Queue(t, 1000)
			for _, m := range backlog {
				_ = q.Push(t.Context(), m)
			}
			log, _ := logged()
			stop := running(t, &sinks.Drain{Sink: sink, Queue: q, Logger: log, Parked: store})
			time.Sleep(5 * time.Minute)
			if !store.Empty() || q.Stats().Items > 0 {
				t.Errorf("seed %d: %v, %d in the queue", seed, store.Queues(), q.Stats().Items)
			}
			_ = stop()
			got := map[string][]string{}
			for _, m := range sink.stored() {
				key := m.Resource.Resource + "." + m.Identity.Name
				if ids := got[key]; len(ids) == 0 || ids[len(ids)-1] != m.ID {
					got[key] = append(ids, m.ID)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d: (-want +got):\n%s", seed, diff)
			}
		})
	}
}

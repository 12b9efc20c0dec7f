package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// pickySink accepts all messages except some, by id, and keeps the accepted messages.
type pickySink struct {
	refuse string
	took   []*event.Message
}

func (s *pickySink) Connect(context.Context) error { return nil }
func (s *pickySink) Close(context.Context) error   { return nil }
func (s *pickySink) Part(*event.Message) string    { return "" }

func (s *pickySink) Send(_ context.Context, batch []*event.Message, results []error) {
	for n, m := range batch {
		if m.ID == s.refuse {
			results[n] = sinks.Permanent(errors.New("no"))
			continue
		}
		s.took = append(s.took, m)
	}
}

// draining delivers the messages that are pushed to a pipeline until took is called. took returns the delivered
// messages.
func draining(t *testing.T, p *pipeline, refuse string) (took func() []*event.Message) {
	t.Helper()
	sink := &pickySink{refuse: refuse}
	drain := &sinks.Drain{Sink: sink, Queue: p.Queue, Parked: p.Drain.Parked, Hooks: p.Metrics.Hooks(), Logger: p.Log}
	ended := make(chan error, 1)
	go func() { ended <- drain.Run(t.Context()) }()
	return func() []*event.Message {
		p.Queue.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return sink.took
	}
}

// Re-sent objects are settled before the synced event is sent. A loss during the resync is reported.
func TestDelivered(t *testing.T) {
	for overflow, want := range map[string]string{
		"block":       "",
		"drop-oldest": "no synced event was sent: the queue dropped ",
		"compact":     "no synced event was sent: the full queue merged ",
	} {
		t.Run(overflow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipelineFor(t, delivery.Buffer{Events: 12, Bytes: 1 << 20, Overflow: overflow, DiskBytes: 1})
				l := listen(t.Context(), p)
				check := p.lossCheck(l.counters)
				(&restating{listener: l}).OnRestate(pod(t, 3, "Running"))
				updates := 3
				if want != "" {
					updates = 40
				}
				for n := range updates {
					l.OnUpdate(pod(t, 3+n, "Running"), pod(t, 4+n, "Running"))
				}
				ended := make(chan error, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				go func() { ended <- p.awaitSettled(ctx, check) }()
				time.Sleep(time.Minute)
				if want != "" {
					if err := <-ended; err == nil || !strings.HasPrefix(err.Error(), want) {
						t.Error(err)
					}
					return
				}
				if _, err := p.Queue.Take(t.Context(), nil, 100, 1<<20); err != nil {
					t.Fatal(err)
				}
				p.Queue.Ack(3)
				time.Sleep(time.Minute)
				select {
				case err := <-ended:
					t.Fatalf("one is left, and it ended: %v", err)
				default:
				}
				l.OnUpdate(pod(t, 7, "Running"), pod(t, 8, "Running")) // what comes later is not waited for
				p.Queue.Ack(1)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				l.OnUpdate(pod(t, 8, "Running"), pod(t, 9, "Running"))
				cancel()
				if err := p.awaitSettled(ctx, check); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
			})
		})
	}
}

// Events that wait when the bridge stops are delivered after a restart, in order, regardless of the overflow policies
// before and after it.
func TestWhatWaitsOutlivesTheQueue(t *testing.T) {
	policies := []string{delivery.Block, delivery.Compact, delivery.DropOldest}
	for n, before := range policies {
		after := policies[(n+1)%len(policies)]
		t.Run(before+", then "+after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				p, end := pipelineIn(t, dir, delivery.Buffer{Events: 100, Bytes: 1 << 20, Overflow: before, DiskBytes: 1})
				l := listen(t.Context(), p)
				for rv := range 9 {
					l.OnUpdate(pod(t, rv, "Running"), pod(t, rv+1, "Running"))
				}
				p.Queue.Close()
				end()
				if onDisk, lost := p.Left(); onDisk != 9 || lost != 0 {
					t.Errorf("%d events are on disk, %d are lost", onDisk, lost)
				}
				p, end = pipelineIn(t, dir, delivery.Buffer{Events: 100, Bytes: 1 << 20, Overflow: after})
				took := draining(t, p, "")
				time.Sleep(time.Minute)
				var got []string
				for _, m := range took() {
					got = append(got, strings.TrimPrefix(m.ID, "u1."))
				}
				if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				end()
			})
		})
	}
}

// Consumers compare the time of events with since: if the clock is set back during a resync, re-sent objects must not
// seem to be deleted.
func TestSinceOfAClockThatGoesBack(t *testing.T) {
	began := time.Now()
	r := &restating{listener: listen(t.Context(), pipelineFor(t, roomy)), since: began}
	for _, after := range []time.Duration{time.Second, -time.Hour, -time.Minute} {
		r.restated(began.Round(0).Add(after))
	}
	if want := began.Round(0).Add(-time.Hour); r.since != want {
		t.Errorf("since %s, want %s", r.since, want)
	}
}

// A gap event replaces an event that can't be encoded. It has a key if the sink has keys. The object does not count as
// re-sent.
func TestUnencodable(t *testing.T) {
	p := pipelineFor(t, roomy)
	key, err := event.ParseTemplate("{resource}/{namespace}/{name}", event.EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	p.Encoder.Payload, p.Encoder.PartitionKey = event.PayloadMetadata, key
	l := listen(t.Context(), p)
	r := &restating{listener: l}
	damaged := pod(t, 3, "Running")
	damaged.Raw = []byte("{")
	r.OnRestate(damaged)
	l.OnDelete(damaged)
	if r.objects != 0 || l.counters.NotSent.Load() != 2 {
		t.Errorf("%d objects told, %d rejected", r.objects, l.counters.NotSent.Load())
	}
	batch, err := p.Queue.Take(t.Context(), nil, 100, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range batch {
		got = append(got, m.Type.String()+" "+m.PartitionKey+" for "+m.GapInfo.Event)
	}
	if diff := cmp.Diff([]string{"gap c/pods/_gap for u1.3", "gap pods/shop/web for u1.deleted"}, got); diff != "" {
		t.Error(diff)
	}
}

// A floor that cannot be compared with positions delays nothing and suppresses nothing.
func TestFloorThatDoesNotCompare(t *testing.T) {
	for _, floor := range []string{"x7", "12"} {
		p := pipelineFor(t, roomy)
		p.Buffer.Events, p.Buffer.Bytes = roomy.Events, roomy.Bytes
		l := listen(t.Context(), p)
		l.floor = floor
		r := &restating{listener: l}
		if l.OnUpdate(pod(t, 11, "Running"), pod(t, 12, "Running")); p.Queue.Stats().Items > 0 != (floor == "x7") {
			t.Errorf("floor %s: %d events", floor, p.Queue.Stats().Items)
		}
		l.OnPosition("12")
		if l.floor != "" || !r.MayRestate() {
			t.Errorf("floor %s: still %q, may restate: %t", floor, l.floor, r.MayRestate())
		}
	}
}

// The changes that the previous process sent and did not settle follow the floor. If another sink was behind, the watch
// may reach the floor long after it was opened. Until these changes have arrived, the positions of the previous process
// stay.
func TestCaughtUpBehindTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := pipelineIn(t, t.TempDir(), roomy)
		defer end()
		w := watch.NewFake()
		i := informer.New(
			informer.Config{Source: informer.Source{Resource: pods}, ResumeAt: "10", ListWatch: &cache.ListWatch{
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return w, nil
				},
			}},
		)
		l := listen(t.Context(), p)
		l.position, l.floor, l.inList = "10", "20", false
		i.AddEventHandler(l)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = i.Run(ctx) })
		want := func(caughtUp bool, when string) {
			t.Helper()
			if got := i.CaughtUp(); got != caughtUp {
				t.Errorf("%s: %t", when, got)
			}
		}
		time.Sleep(2 * informer.ResumeGrace)
		want(false, "before the floor")
		w.Add(pod(t, 20, "Running"))
		synctest.Wait()
		want(false, "at the floor")
		time.Sleep(2 * informer.ResumeGrace)
		want(true, "later")
		cancel()
		group.Wait()
	})
}

// The positions of the previous process stay until the informers of all resources have delivered the changes that it
// may have sent. This includes resources that the previous process could read and this process can't read, because they
// are not served or are forbidden.
func TestCaughtUpWithResourcesThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		run := func(resumeAt string, err error) *informer.Informer {
			i := informer.New(informer.Config{
				Source: informer.Source{Resource: pods}, ResumeAt: resumeAt, NoWatchList: true, ListWatch: &cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, err },
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						return watch.NewFake(), err
					},
				},
			})
			group.Go(func() { _ = i.Run(ctx) })
			return i
		}
		denied := apierrors.NewForbidden(pods.GroupResource(), "", nil)
		works, known, unknown := run("10", nil), run("10", denied), run("", denied)
		time.Sleep(2 * informer.ResumeGrace)
		for _, c := range []struct {
			when       string
			remembered []informer.Source
			informers  []*informer.Informer
			some, all  bool
		}{
			{"nothing was discovered yet", nil, nil, false, true},
			{"never read", nil, []*informer.Informer{works, unknown}, true, true},
			{"forbidden now", nil, []*informer.Informer{works, known}, true, false},
			{"not served now", []informer.Source{{Name: "x"}}, []*informer.Informer{works}, true, false},
		} {
			if some, all := caughtUp(c.remembered, c.informers); some != c.some || all != c.all {
				t.Errorf("%s: some %t, all %t", c.when, some, all)
			}
		}
		cancel()
		group.Wait()
	})
}

// If a list is older than the state that a sink had settled, nothing of the list is sent to the sink: states that it
// missed before would arrive after newer ones. If the list is newer, the sink is sent the states that it had not
// settled, and objects that may have been deleted since.
func TestAListBelowTheFloor(t *testing.T) {
	for _, c := range []struct {
		to   string
		want []string
	}{
		{"18", []string{"updated u1.30"}},
		{"20", []string{"updated u1.30"}},
		{"22", []string{"gap gap.c.pods.relist.10.22", "deleted u1.deleted", "updated u1.21", "updated u1.30"}},
	} {
		p := pipelineFor(t, roomy)
		l := listen(t.Context(), p)
		l.OnPosition("10")
		l.floor = "20"
		l.OnGap("10", c.to, "history is gone")
		l.OnUpdate(pod(t, 9, "Running"), pod(t, 15, "Running"))
		l.OnDelete(unseen(t, "u1", 16))
		if c.to == "22" {
			l.OnUpdate(pod(t, 15, "Running"), pod(t, 21, "Running"))
		}
		l.OnPosition(c.to)
		if c.to == "18" {
			l.OnUpdate(pod(t, 15, "Running"), pod(t, 19, "Running"))
		}
		l.OnUpdate(pod(t, 19, "Running"), pod(t, 30, "Running"))
		if diff := cmp.Diff(c.want, taken(t, p)); diff != "" {
			t.Errorf("a list at %s: %s", c.to, diff)
		}
	}
}

// An object that replaced another one of its name follows the deletion, which may be a repetition: otherwise the
// destination would take the object for deleted.
func TestAReplacedObjectBelowTheFloor(t *testing.T) {
	p := pipelineFor(t, roomy)
	l := listen(t.Context(), p)
	l.OnPosition("10")
	l.floor = "20"
	l.OnGap("10", "22", "history is gone")
	l.OnDelete(unseen(t, "u0", 8))
	l.OnAdd(pod(t, 15, "Running"), false)
	l.OnUpdate(pod(t, 15, "Running"), pod(t, 16, "Running"))
	want := []string{"gap gap.c.pods.relist.10.22", "deleted u0.deleted", "added u1.15"}
	if diff := cmp.Diff(want, taken(t, p)); diff != "" {
		t.Error(diff)
	}
}

// unseen returns the last known state of a pod whose deletion the watch did not report.
func unseen(t *testing.T, uid types.UID, resourceVersion int) *object.Object {
	t.Helper()
	gone := *pod(t, resourceVersion, "Running")
	gone.UID, gone.FinalStateUnknown = uid, true
	return &gone
}

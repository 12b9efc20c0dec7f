package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

var newList = regexp.MustCompile("delivery [a-z2-7]{8}$")

// A destination that differs from the destination in the checkpoint is sent the waiting events, and then all existing
// objects as an initial list. Only when all of them are delivered does the checkpoint contain the new destination.
// Until then, no destination counts as complete, not even the previous one.
func TestANewDestination(t *testing.T) {
	introduced := []string{"deleted u1.deleted", "added u1.3", "added u1.4", "synced {pods 10 3}"}
	for name, tt := range map[string]struct {
		known, now string
		stuck      bool // nothing is delivered
		want       []string
		after      string
		list       string // the name of the initial list; empty for a new one
	}{
		"the same":                  {known: "stream A", now: "stream A", want: []string{"deleted u1.deleted"}, after: "stream A"},
		"not known before":          {now: "stream A", want: []string{"deleted u1.deleted"}, after: "stream A"},
		"another":                   {known: "stream A", now: "stream B", want: introduced, after: "stream B"},
		"another, nothing gets out": {known: "stream A", now: "stream B", stuck: true, after: "part of stream B, delivery ?"},
		"that again": {
			known: "part of stream B, delivery l1", now: "stream B", want: introduced, after: "stream B", list: "l1",
		},
		"that again, and again nothing gets out": {
			known: "part of stream B, delivery l1", now: "stream B", stuck: true, after: "part of stream B, delivery l1", list: "l1",
		},
		"that again, after an earlier version": {
			known: "part of stream B", now: "stream B", want: introduced, after: "stream B",
		},
		"back to the first": {
			known: "part of stream B, delivery l1", now: "stream A", want: introduced, after: "stream A",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipelineFor(t, roomy, filter.Rule{When: "object.status.phase == 'Running' || operation == 'deleted'"})
				p.Buffer.Events, p.Buffer.Bytes = roomy.Events, roomy.Bytes
				p.Destinations = make(chan string, 1) // of this bubble
				p.restating = make(chan struct{}, 1)
				a := watching(t, p, "a", nil, pod(t, 3, "Running"))
				b := watching(t, p, "b", nil, pod(t, 4, "Running"))
				c := watching(t, p, "c", nil, pod(t, 5, "Pending"))
				synctest.Wait()
				listen(t.Context(), p).OnDelete(pod(t, 2, "Running")) // as if it had been spilled
				ctx, cancel := context.WithCancel(t.Context())
				r := resyncerFor(ctx, p)
				r.informers = func() []*informer.Informer { return []*informer.Informer{a, b, c} }
				ended := make(chan struct{})
				if err := p.tracker.SetDestination(p.Name, tt.known); err != nil {
					t.Fatal(err)
				}
				took := func() []*event.Message { return nil }
				if !tt.stuck {
					took = draining(t, p, "")
				}
				go func() { r.follow(p, func() bool { return true }); close(ended) }()
				p.Destinations <- tt.now
				for range 20 { // resumed informers are asked after five seconds
					time.Sleep(time.Second) // of the bubble
				}
				cancel()
				<-ended
				var got []string
				lists := map[string]bool{}
				for _, m := range took() {
					var info event.SyncedInfo
					switch {
					case m.Type != event.Synced:
						got = append(got, m.Type.String()+" "+m.ID)
					case json.Unmarshal(m.Data, &info) == nil && !info.Resync:
						got = append(got, fmt.Sprintf("synced {%s %s %d}", info.Resource, info.ResourceVersion, info.Objects))
					}
					if m.Type == event.Added && (!m.InitialList || m.Origin.Position != "10") {
						t.Errorf("%s: initial %v, position %q", m.ID, m.InitialList, m.Origin.Position)
					}
					if m.Type == event.Deleted != (m.Delivery == "") || tt.list == "" && m.Delivery == "l1" {
						t.Errorf("%s %s: delivery %q", m.Type, m.ID, m.Delivery)
					}
					if m.Type != event.Deleted {
						lists[m.Delivery] = true
					}
				}
				if len(lists) > 1 || tt.list != "" && !tt.stuck && !lists[tt.list] {
					t.Errorf("deliveries %v, want %q", lists, tt.list)
				}
				if p.Introducing.Load() != tt.stuck {
					t.Errorf("positions stay: %t", !tt.stuck)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				known := p.tracker.Destination(p.Name)
				if tt.list == "" {
					known = newList.ReplaceAllString(known, "delivery ?")
				}
				if known != tt.after {
					t.Errorf("the checkpoint knows %q, want %q", known, tt.after)
				}
			})
		})
	}
}

// A destination that is replaced during its initial list does not count as complete. The list for the next destination
// begins at once. When it is delivered, the sink can be resynced again.
func TestADestinationThatIsReplacedDuringItsInitialList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipelineFor(t, roomy)
		a := watching(t, p, "a", nil, pod(t, 3, "Running"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		r := resyncerFor(ctx, p)
		r.informers = func() []*informer.Informer { return []*informer.Informer{a} }
		ended := make(chan struct{})
		if err := p.tracker.SetDestination(p.Name, "stream A"); err != nil {
			t.Fatal(err)
		}
		go func() { r.follow(p, func() bool { return true }); close(ended) }()
		for _, now := range []string{"stream B", "stream C"} {
			if err := p.Drain.Sink.(*sinks.Guard).OnDestination(now); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Second) // of the bubble; nothing is delivered
			synctest.Wait()
			if got := newList.ReplaceAllString(
				p.tracker.Destination(p.Name),
				"delivery ?",
			); got != "part of "+now+", delivery ?" {
				t.Errorf("the checkpoint knows %q during the initial list for %s", got, now)
			}
		}
		if report := r.resyncSink(p, "test"); report.Error == "" {
			t.Errorf("a resync during the initial list: %+v", report)
		}
		took := draining(t, p, "")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := p.tracker.Destination(p.Name); got != "stream C" {
			t.Errorf("in the end the checkpoint knows %q", got)
		}
		if report := r.resyncSink(p, "test"); report.Error != "" || report.Objects != 1 {
			t.Errorf("a resync after the initial list: %+v", report)
		}
		cancel()
		<-ended
		var got []string
		for _, m := range took() {
			got = append(got, m.Type.String())
		}
		if diff := cmp.Diff([]string{"added", "synced", "added", "synced", "restated", "synced"}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// unwritable is a state log that accepts nothing while it fails.
type unwritable struct {
	fails  atomic.Bool
	number uint64
}

func (u *unwritable) Sync() error {
	if u.fails.Load() {
		return errors.New("no room")
	}
	return nil
}

func (u *unwritable) Append([]statelog.Pair) (statelog.Point, error) {
	u.number++
	return statelog.Point{Number: u.number}, nil
}

// If the checkpoint cannot be written when the destination becomes known, the destination is stored as soon as it can.
func TestADestinationThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, dir := &unwritable{}, t.TempDir()
		store, err := checkpoint.Open(checkpoint.Options{Path: dir, NoSync: true, Log: log})
		if err == nil {
			err = errors.Join(store.TakeOver(), store.BeginCluster("c"))
		}
		if err != nil {
			t.Fatal(err)
		}
		e := engineOf(t, store, dir, map[string]sinks.Sink{"test": stdout.New(io.Discard)})
		p := e.pipelines[0]
		ended := make(chan struct{})
		go func() { e.resyncs.follow(p, func() bool { return true }); close(ended) }()
		log.fails.Store(true)
		p.Destinations <- "stream A"
		time.Sleep(10 * time.Second)
		if got := p.tracker.Destination("test"); got != "" {
			t.Errorf("%q was stored", got)
		}
		log.fails.Store(false)
		time.Sleep(10 * time.Second)
		if got := p.tracker.Destination("test"); got != "stream A" {
			t.Errorf("%q is stored", got)
		}
		endEngine(t, e)
		<-ended
	})
}

// While it cannot be stored that the destination has changed, the sink tries again and again. The log says once that it
// has changed.
func TestAChangedDestinationIsLoggedOnce(t *testing.T) {
	log, dir := &unwritable{}, t.TempDir()
	store, err := checkpoint.Open(checkpoint.Options{Path: dir, NoSync: true, Log: log})
	if err == nil {
		err = errors.Join(store.TakeOver(), store.BeginCluster("c"), store.SetDestination("test", "stream A"))
	}
	if err != nil {
		t.Fatal(err)
	}
	e := engineOf(t, store, dir, map[string]sinks.Sink{"test": stdout.New(io.Discard)})
	defer endEngine(t, e)
	p := e.pipelines[0]
	var logged bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&logged, nil))
	for n := range 4 {
		log.fails.Store(n < 3)
		if delivery, err := p.leave("stream B"); (err == nil) != (n == 3) || delivery == "" {
			t.Errorf("attempt %d: delivery %q, %v", n, delivery, err)
		}
	}
	if n := strings.Count(logged.String(), "destination has changed"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// somewhere is a sink whose destination has a name. It calls onSend for each message.
type somewhere struct {
	sinks.Sink

	name   string
	onSend func()
}

func (s *somewhere) Destination() string                               { return s.name }
func (*somewhere) Register(context.Context, sinks.Owner, string) error { return nil }
func (*somewhere) Registered(context.Context, string) (sinks.Registration, error) {
	return sinks.Registration{}, sinks.ErrNoRegister
}
func (s *somewhere) Send(context.Context, []*event.Message, []error) { s.onSend() }

// What waits on disk is sent before the API server answers. If it goes to another destination, the one in the
// checkpoint does not have it, so it does not count as complete any more.
func TestAnotherDestinationBeforeTheAPIServerAnswers(t *testing.T) {
	for _, uid := range []string{"", "u"} {
		state, stored := t.TempDir(), make(chan string, 1)
		sink := &somewhere{Sink: stdout.New(io.Discard), name: "stream B"}
		e := engineWith(t, state, map[string]sinks.Sink{"live": sink})
		sink.onSend = func() { stored <- e.tracker.Destination("live") }
		if uid != "" {
			if err := e.options.Store.BeginCluster(uid); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.tracker.SetDestination("live", "stream A"); err != nil {
			t.Fatal(err)
		}
		if err := e.pipelines[0].Queue.Push(t.Context(), &event.Message{Type: event.Deleted, Time: time.Now()}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		if got := newList.ReplaceAllString(<-stored, "delivery ?"); got != "part of stream B, delivery ?" {
			t.Errorf("uid %q: while an event is sent to stream B, the checkpoint knows %q", uid, got)
		}
		stop()
		if err := errors.Join(<-ended, e.options.Store.Close()); err != nil {
			t.Error(err)
		}
	}
}

// resumer is a sink whose position advances with each call of Positions.
type resumer struct {
	sinks.Sink

	next, forgotten int
	foundNothing    bool
}

func (*resumer) Resume(sinks.Resume)  {}
func (r *resumer) Forget()            { r.forgotten++ }
func (*resumer) Fenced() bool         { return true }
func (r *resumer) FoundNothing() bool { return r.foundNothing }
func (r *resumer) Positions([]string) sinks.Positions {
	r.next++
	return sinks.Positions{"p": {Next: int64(r.next)}}
}

// The position of a sink that has found nothing advances before the sources have caught up. So the next process does not
// read back what many processes have sent that followed each other quickly.
func TestPositionOfASinkThatHasFoundNothing(t *testing.T) {
	sink := &resumer{Sink: stdout.New(io.Discard)}
	e := engineWith(t, t.TempDir(), map[string]sinks.Sink{"live": sink})
	defer endEngine(t, e)
	for _, sink.foundNothing = range []bool{false, true} {
		e.pipelines[0].Drain.Hooks.Between()
		if err := e.tracker.Commit(); err != nil {
			t.Fatal(err)
		}
		if stored := len(e.tracker.Resumes("live").Positions); (stored > 0) != sink.foundNothing {
			t.Errorf("found nothing: %t, %d positions are stored", sink.foundNothing, stored)
		}
	}
}

// What a sink has read back is forgotten when a position that is past it is stored.
func TestForgetWhatWasReadBack(t *testing.T) {
	sink := &resumer{Sink: stdout.New(io.Discard)}
	e := engineWith(t, t.TempDir(), map[string]sinks.Sink{"live": sink})
	defer endEngine(t, e)
	between := e.pipelines[0].Drain.Hooks.Between
	between() // the sources may still bring what earlier processes sent
	e.tracker.CaughtUp()
	for range 3 {
		between()
	}
	if sink.next != 1 || sink.forgotten > 0 {
		t.Errorf("before the commit: %d positions, %d times forgotten", sink.next, sink.forgotten)
	}
	if err := e.tracker.Commit(); err != nil {
		t.Fatal(err)
	}
	between()
	if sink.forgotten != 1 {
		t.Error("not forgotten after the commit")
	}
}

// While a new destination has only a part of its initial list, its positions stay where the list begins, even after a
// restart. Otherwise the next process would not find the part of the list that was sent.
func TestPositionsDuringTheInitialListForADestination(t *testing.T) {
	for destination, want := range map[string]int{"": 1, "stream B": 1, "part of stream B, delivery l1": 0} {
		state := t.TempDir()
		start := func() *Engine {
			return engineWith(t, state, map[string]sinks.Sink{"live": &resumer{Sink: stdout.New(io.Discard)}})
		}
		e := start()
		if err := e.tracker.SetDestination("live", destination); err != nil {
			t.Fatal(err)
		}
		endEngine(t, e)
		e = start()
		e.tracker.CaughtUp()
		e.notePositions(e.pipelines)
		if err := e.tracker.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := len(e.tracker.Resumes("live").Positions); got != want {
			t.Errorf("%q: %d positions, want %d", destination, got, want)
		}
		endEngine(t, e)
	}
}

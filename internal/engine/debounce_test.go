package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// box is an object that passes a filter "object.inside", or does not. n distinguishes its states.
func box(t *testing.T, name, uid string, rv int, in bool) *object.Object {
	t.Helper()
	o, err := object.New(fmt.Appendf(nil,
		`{"metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d"},"inside":%t,"status":%d}`,
		name, uid, rv, in, rv))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// startDebouncing starts a process whose sink debounces. stop ends its goroutine.
func startDebouncing(t *testing.T, dir string, relist bool, rules ...filter.Rule) (s *tracked, stop func()) {
	t.Helper()
	s = startTracked(t, dir, relist, nil, rules...)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.pipeline.followDebounce(ctx) })
	return s, func() { cancel(); group.Wait() }
}

// change delivers a state as the watch does.
func (s *tracked) change(o *object.Object, deleted bool) {
	s.t.Helper()
	deliver := s.informer.Store().Update
	if deleted {
		deliver = s.informer.Store().Delete
	}
	s.must(deliver(o))
	s.informer.Store().UpdateResourceVersion(o.ResourceVersion)
}

// oldOf returns the resourceVersion of the old state in the data of an event.
func oldOf(t *testing.T, m *event.Message) string {
	t.Helper()
	var data struct {
		Old struct {
			Metadata struct{ ResourceVersion string }
		}
	}
	if err := json.Unmarshal(m.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data.Old.Metadata.ResourceVersion
}

// Updates wait, and the latest state is sent; additions, deletions and leaves are sent at once.
func TestDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startDebouncing(t, t.TempDir(), false, filter.Rule{When: "object.inside", Debounce: 10 * time.Second})
		update := func(uid string, rv int, in bool) { s.change(box(t, uid, uid, rv, in), false) }
		expect := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, taken(t, s.pipeline)); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", time.Now().Format(time.TimeOnly), diff)
			}
			s.pipeline.Queue.Ack(s.pipeline.Queue.Stats().Taken)
		}
		s.must(s.informer.Store().Replace([]any{box(t, "a", "a", 1, true)}, "1"))
		expect("added a.1 initial", "synced synced.c.pods.1")
		update("a", 2, true)
		time.Sleep(6 * time.Second)
		update("a", 3, true)
		update("b", 4, true) // an addition
		expect("added b.4")
		time.Sleep(5 * time.Second)
		expect("updated a.3")
		update("a", 5, true)
		update("b", 6, true)
		s.change(box(t, "b", "b", 7, true), true)
		expect("deleted b.deleted")
		update("a", 8, false)
		expect("deleted a.8.left left at 8")
		update("a", 9, true)
		expect("added a.9")
		time.Sleep(time.Minute)
		expect()
		update("a", 10, true)
		s.pipeline.pushDue(true) // at a stop
		expect("updated a.10")
		update("a", 11, true)
		(&restating{listener: s.pipeline.attached["pods"]}).OnRestate(box(t, "a", "a", 11, true))
		expect("updated a.11", "restated a.11")
		update("a", 12, true)
		s.must(s.engine.tracker.Commit())
		if n, _ := s.engine.tracker.Unsettled("test"); n != 1 {
			t.Errorf("%d events are unsettled", n)
		}
		stop()
		s.kill()
	})
}

// The update of several filters waits for the shortest debounce, and not at all if one filter has none. What is sent has
// the old state from before the first change that has waited.
func TestDebounceOfSeveralFilters(t *testing.T) {
	rules := []filter.Rule{
		{Debounce: 20 * time.Second},
		{When: "object.status > 4", Debounce: 5 * time.Second},
		{When: "object.status > 6"},
	}
	f, mistakes := filter.Compile(rules, filter.Options{})
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for rv, want := range map[int]time.Duration{3: 20 * time.Second, 5: 5 * time.Second, 7: 0} {
		if got := f.For(pods).Debounce(box(t, "a", "a", rv-1, true), box(t, "a", "a", rv, true)); got != want {
			t.Errorf("%d waits for %v", rv, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		rules := []filter.Rule{{When: "object.inside"}, {Debounce: time.Minute}}
		s, stop := startDebouncing(t, t.TempDir(), false, rules...)
		s.must(s.informer.Store().Replace([]any{box(t, "a", "a", 1, false)}, "1"))
		s.change(box(t, "a", "a", 2, false), false)
		s.change(box(t, "a", "a", 3, true), false)
		batch, err := s.pipeline.Queue.Take(t.Context(), nil, 9, 1<<20)
		if err != nil || len(batch) != 3 || batch[2].ID != "a.3" || oldOf(t, batch[2]) != "1" {
			t.Errorf("one filter does not debounce: %v %v", batch, err)
		}
		stop()
		s.kill()
	})
	synctest.Test(t, func(t *testing.T) {
		s, stop := startDebouncing(t, t.TempDir(), false, filter.Rule{
			IgnoreChanges: []string{"inside"}, Operations: []string{"updated"}, Debounce: 10 * time.Second,
		})
		s.must(s.informer.Store().Replace([]any{box(t, "a", "a", 1, true)}, "1"))
		s.change(box(t, "a", "a", 2, true), false)
		s.change(box(t, "a", "a", 3, true), false)
		s.change(box(t, "a", "a", 4, true), true) // its deletion is not sent, its last state is
		batch, err := s.pipeline.Queue.Take(t.Context(), nil, 9, 1<<20)
		if err != nil || len(batch) != 2 || batch[1].ID != "a.3" || oldOf(t, batch[1]) != "1" {
			t.Errorf("%v %v", batch, err)
		}
		stop()
		s.kill()
	})
}

// A waiting update keeps the positions of other events behind it: when they are on disk, it is not settled.
func TestPositionsWhileAnUpdateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startDebouncing(t, t.TempDir(), false, filter.Rule{Debounce: 10 * time.Second})
		s.must(s.informer.Store().Replace([]any{box(t, "a", "a", 1, true)}, "1"))
		s.change(box(t, "a", "a", 2, true), false)
		s.change(box(t, "b", "b", 3, true), false)
		time.Sleep(11 * time.Second)
		s.change(box(t, "c", "c", 4, true), false)
		batch, err := s.pipeline.Queue.Take(t.Context(), nil, 9, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range batch[2:] {
			got = append(got, m.ID+" at "+m.Origin.Position)
		}
		if diff := cmp.Diff([]string{"b.3 at 1", "a.2 at 2", "c.4 at 4"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		stop()
		s.kill()
	})
}

// While a list is passed on, nothing that has waited is sent. If etcd was restored, no position from before counts.
func TestListsWhileAnUpdateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startDebouncing(t, t.TempDir(), false, filter.Rule{Debounce: 10 * time.Second})
		s.must(s.informer.Store().Replace([]any{box(t, "a", "a", 1, true)}, "1"))
		s.change(box(t, "a", "a", 7, true), false)
		l := s.pipeline.attached["pods"]
		l.OnGap("7", "5", "restored")
		time.Sleep(time.Minute)
		l.OnUpdate(box(t, "a", "a", 7, true), box(t, "a", "a", 4, true))
		l.OnAdd(box(t, "b", "b", 3, true), false)
		l.OnPosition("5")
		time.Sleep(time.Second)
		batch, err := s.pipeline.Queue.Take(t.Context(), nil, 9, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range batch[2:] {
			got = append(got, m.ID+" at "+m.Origin.Position)
		}
		want := []string{"gap.c.pods.relist.7.5 at ", "b.3 at ", "a.4 at 4"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		stop()
		s.kill()
	})
}

// If the API server serves another version of a resource, an informer succeeds the one that has passed on the changes
// that wait. They are sent, and what the successor passes on does not overtake them.
func TestDebounceOfAFormerListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startDebouncing(t, t.TempDir(), false, filter.Rule{When: "object.inside", Debounce: 10 * time.Second})
		s.must(s.informer.Store().Replace([]any{box(t, "a", "a", 1, true)}, "1"))
		s.change(box(t, "a", "a", 2, true), false)
		successor := informer.New(informer.Config{Source: s.informer.Source()})
		s.engine.attach(successor)
		s.change(box(t, "b", "b", 3, true), false) // the predecessor has not ended yet
		s.change(box(t, "b", "b", 4, true), false)
		time.Sleep(time.Minute)
		expectTaken(t, s.pipeline, "added a.1 initial", "synced synced.c.pods.1", "added b.3", "updated a.2", "updated b.4")
		s.change(box(t, "a", "a", 5, true), false)
		successor.Succeed(s.informer)
		s.must(successor.Store().Replace([]any{box(t, "a", "a", 5, true), box(t, "b", "b", 6, true)}, "6"))
		expectTaken(t, s.pipeline, "updated a.5", "gap gap.c.pods.relist.5.6")
		time.Sleep(time.Minute)
		expectTaken(t, s.pipeline, "updated b.6")
		stop()
		s.kill()
	})
}

package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// The version of a resource is replaced before the known objects were sent to a sink that needs them as its initial
// list. The informer of the next version sends them, also the deletion of one that the sink may have.
func TestAnotherVersionBeforeTheInitialListIsSent(t *testing.T) {
	dir := t.TempDir()
	s := startTracked(t, dir, false, nil)
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	want := []string{"added a.1 initial", "added b.2 initial", "synced synced.c.pods.3"}
	if diff := cmp.Diff(want, taken(t, s.pipeline)); diff != "" { // and not settled
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.kill()

	s = startTracked(t, dir, false, nil)
	source := s.informer.Source()
	next := informer.New(informer.Config{Source: source, Record: s.engine.tracker.Record(source)})
	s.engine.attach(next)
	next.Succeed(s.informer)
	s.must(next.Store().Replace([]any{in(t, "a", 1), in(t, "c", 4)}, "5"))
	s.expect("gap gap.c.pods.relist.3.5", "deleted b.deleted",
		"added a.1 initial", "added c.4 initial", "synced synced.c.pods.5")
	if _, whole := s.engine.tracker.Unsettled("test"); !whole {
		t.Error("the initial list does not count as sent")
	}
	s.kill()
}

// The version of a resource is replaced after `watch` was changed, and before the objects were listed. The list of the
// next version shows which objects `watch` selects now, and which it does not select any more.
func TestAnotherVersionBeforeAChangedWatchIsListed(t *testing.T) {
	dir := t.TempDir()
	s := startTracked(t, dir, false, nil)
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	s.expect("added a.1 initial", "added b.2 initial", "synced synced.c.pods.3")
	s.kill()

	s = startTracked(t, dir, true, nil)
	source := s.informer.Source()
	source.LabelSelector = "app"
	next := informer.New(informer.Config{
		Source: source, Record: s.engine.tracker.Record(source), Relist: true, // as the fleet sets it
		Within: func(o *object.Object) bool { return o.Namespace != "b" },
	})
	s.engine.attach(next)
	next.Succeed(s.informer)
	s.must(next.Store().Replace([]any{in(t, "a", 1), in(t, "c", 2)}, "5"))
	s.expect("gap gap.c.pods.relist.3.5", "deleted b.2.left left at 2", "added c.2")
	s.kill()
}

// The version of a resource is replaced, and the labels of namespaces change before the next version was listed: the
// sink is sent the difference when it was.
func TestAnotherVersionWhileNamespacesChange(t *testing.T) {
	s := startSelecting(t, t.TempDir(), filter.Namespaces{"a": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	s.expect("added a.1 initial", "synced synced.c.pods.3")
	source := s.informer.Source()
	next := informer.New(informer.Config{Source: source, Record: s.engine.tracker.Record(source)})
	s.engine.attach(next)
	next.Succeed(s.informer)
	affected := s.pipeline.selectNamespaces(filter.Namespaces{"a": {}, "b": picked})
	name := filterChange(t, s)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for _, l := range affected {
			l.followFilter(t.Context())
		}
	}()
	select {
	case <-followed:
	case <-time.After(20 * time.Millisecond):
	}
	s.must(next.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "5"))
	<-followed
	s.expect("gap gap.c.pods.relist.3.5", "deleted a.1.left.filter."+name+" left at 1", "added b.2.filter."+name)
	s.kill()
}

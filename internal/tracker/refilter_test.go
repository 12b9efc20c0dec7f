package tracker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func expectKnown(t *testing.T, e *Tracker, source, sink, floor string, filters ...string) Knowledge {
	t.Helper()
	got := e.Known(source, sink)
	want := Knowledge{Floor: floor, Part: floor == "", Refilter: ledger.Refilter{Filters: filters, Change: got.Change}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || (got.Change != "") != (len(filters) > 0) {
		t.Errorf("%s knows (-want +got):\n%s", sink, diff)
	}
	return got
}

// The difference that a changed filter still has to send survives restarts of any kind, also while other sinks
// continue, until it is settled.
func TestAChangedFilterOverRestarts(t *testing.T) {
	folder := t.TempDir()
	sinks := func(filter string) []Sink { return []Sink{{Name: "a", Filter: filter}, {Name: "b", Filter: "B"}} }
	e := start(t, folder, sinks("F1")...)
	begin(t, e, pods, "10", pod(t, "x", 3))
	stop(t, e)

	e = start(t, folder, sinks("F2")...)
	e.Resume(pods)
	change := expectKnown(t, e, "pods", "a", "10", "F1").Change
	expectKnown(t, e, "pods", "b", "10")
	e.Record(pods).Reached("12") // b has settled everything up to there
	stop(t, e)

	e = start(t, folder, sinks("F2")...) // the same again
	e.Resume(pods)
	if again := expectKnown(t, e, "pods", "a", "10", "F1"); again.Change != change {
		t.Errorf("the change has the name %s, after %s", again.Change, change)
	}
	expectKnown(t, e, "pods", "b", "12")
	kill(t, e)

	e = start(t, folder, sinks("F3")...) // F2 may have let objects in
	e.Resume(pods)
	if again := expectKnown(t, e, "pods", "a", "10", "F1", "F2"); again.Change == change {
		t.Error("two changes have one name")
	}
	caughtUp(t, e, pods, "14")
	expectKnown(t, e, "pods", "a", "10")
	stop(t, e)

	e = start(t, folder, sinks("F3")...)
	at := e.Resume(pods).At
	expectKnown(t, e, "pods", "a", "14")
	if at != "14" {
		t.Errorf("it resumes at %s", at)
	}
}

// A source that can't begin keeps its own record of the change: what was sent of others is not sent again.
func TestASourceThatCannotBegin(t *testing.T) {
	folder := t.TempDir()
	other := informer.Source{Name: "secrets", Resource: pods.Resource}
	e := start(t, folder, Sink{Name: "a", Filter: "F1"})
	begin(t, e, pods, "10")
	begin(t, e, other, "11")
	stop(t, e)
	e = start(t, folder, Sink{Name: "a", Filter: "F2"})
	e.Resume(pods)
	caughtUp(t, e, pods, "12")
	stop(t, e)
	for _, filter := range []string{"F2", "F3"} {
		e = start(t, folder, Sink{Name: "a", Filter: filter})
		e.Resume(pods)
		e.Resume(other)
		if filter == "F2" {
			expectKnown(t, e, "pods", "a", "12")
			expectKnown(t, e, "secrets", "a", "11", "F1")
		} else {
			expectKnown(t, e, "pods", "a", "12", "F2")
			expectKnown(t, e, "secrets", "a", "11", "F1", "F2")
		}
		kill(t, e)
	}
}

// A sink that was sent a part of its initial list through another filter may know any subset of the objects that this
// filter passes.
func TestAFilterThatChangesInTheInitialList(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "a", Filter: "F1"})
	e.Resume(pods)
	e.Record(pods).FirstList(nil, "10")
	send(e, pods, "a")
	stop(t, e)
	e = start(t, folder, Sink{Name: "a", Filter: "F2"})
	e.Resume(pods)
	expectKnown(t, e, "pods", "a", "", "F1")
}

// A filter changes while the process runs. Whatever kills the process, the next one knows of the filter before, for the
// sources that the change affects.
func TestAFilterThatChangesAtRunTime(t *testing.T) {
	folder := t.TempDir()
	other := informer.Source{Name: "secrets", Resource: pods.Resource}
	e := start(t, folder, Sink{Name: "a", Filter: "F1"})
	begin(t, e, pods, "10", pod(t, "x", 3))
	begin(t, e, other, "10")
	_ = e.Commit()
	if !e.ChangeFilter("a", "F2", func(s informer.Source) bool { return s == pods }) {
		t.Fatal("the change was not stored")
	}
	change := e.Ledger("pods").Refilter("a").Change
	kill(t, e)

	e = start(t, folder, Sink{Name: "a", Filter: "F2"})
	e.Resume(pods)
	e.Resume(other)
	if again := expectKnown(t, e, "pods", "a", "10", "F1"); again.Change != change {
		t.Errorf("the change has the name %s, after %s", again.Change, change)
	}
	expectKnown(t, e, "secrets", "a", "10")
	if got := e.StoredFilter("a"); got != "F2" {
		t.Errorf("stored: %s", got)
	}
	caughtUp(t, e, pods, "12")
	_ = e.Commit()
	if !e.ChangeFilter("a", "F3", func(informer.Source) bool { return true }) {
		t.Fatal("the change was not stored")
	}
	caughtUp(t, e, pods, "13")
	_ = e.Commit()
	kill(t, e)

	e = start(t, folder, Sink{Name: "a", Filter: "F2"}) // there and back again
	e.Resume(pods)
	e.Resume(other)
	expectKnown(t, e, "pods", "a", "13", "F3")
	expectKnown(t, e, "secrets", "a", "10", "F2", "F3")
}

// A filter changes while a source is listed because its scope has changed, or before a source takes over another one.
// Whatever is stored of these sources after that still contains the filter before.
func TestAFilterThatChangesWhileAScopeChanges(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "a", Filter: "F1"})
	begin(t, e, pods, "10", pod(t, "x", 3))
	begin(t, e, podsIn("b"), "10", in(t, "b", "y", 4))
	stop(t, e)

	changed := pods
	changed.Scope = "app=y"
	e = start(t, folder, Sink{Name: "a", Filter: "F1"})
	e.Resume(changed)
	if !e.ChangeFilter("a", "F2", func(informer.Source) bool { return true }) {
		t.Fatal("the change was not stored")
	}
	if !e.Record(pods).Entering([]*object.Object{pod(t, "z", 7)}) {
		t.Fatal("what enters is not stored")
	}
	into := podsIn("a")
	e.TakeOver(into, []informer.Share{{Source: "pods in b", In: everything}})
	kill(t, e)

	e = start(t, folder, Sink{Name: "a", Filter: "F2"})
	e.Resume(changed)
	e.Resume(into)
	expectKnown(t, e, "pods", "a", "", "F1") // it was killed while the scope changed
	expectKnown(t, e, into.Name, "a", "10", "F1")
	kill(t, e)
}

// A process stores positions before it has identified the cluster, and thus before it knows which namespaces its filters
// select. That is no change of a filter.
func TestPositionsBeforeTheFilterIsKnown(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "a", Filter: "F1"})
	begin(t, e, pods, "10", pod(t, "x", 3))
	stop(t, e)

	e = New(Options{
		Store: openStore(
			t,
			folder,
		),
		Sinks:   []Sink{{Name: "a", Filter: "F"}},
		Queues:  &disk{},
		Reading: t.Context(),
		Logger:  quiet,
	})
	e.Bookmark("a", sinks.Positions{"p": {Next: 7}}, func() bool { return true })
	if err := e.Commit(); err != nil || e.Positions("a")["p"].Next != 7 {
		t.Errorf("%v, %v", e.Positions("a"), err)
	}
	e.SetFilter("a", "F1")
	if err := e.load(testCluster); err != nil {
		t.Fatal(err)
	}
	e.Resume(pods)
	expectKnown(t, e, "pods", "a", "10")
	kill(t, e)
}

// If the uid of the cluster was unknown, the checkpoint belongs to the first cluster whose uid is known later, and to
// no other cluster after that.
func TestAClusterThatGetsItsName(t *testing.T) {
	folder := t.TempDir()
	e := New(Options{Store: openStore(t, folder), Queues: &disk{}, Reading: t.Context(), Logger: quiet})
	if err := e.load(""); err != nil || e.ClusterUID() != checkpoint.UnknownCluster {
		t.Fatal(e.ClusterUID(), err)
	}
	begin(t, e, pods, "10")
	stop(t, e)
	for range 2 {
		e = start(t, folder)
		if n := len(e.Remembered()); n != 1 || e.ClusterUID() != testCluster {
			t.Errorf("%d sources of cluster %s are remembered", n, e.ClusterUID())
		}
		kill(t, e)
	}
}

// If a source takes over others, a sink may know it through any of the filters through which it may know one of the
// others.
func TestTakeOverWithAChangedFilter(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "a", Filter: "F1"})
	begin(t, e, podsIn("a"), "10", in(t, "a", "x", 3))
	begin(t, e, podsIn("b"), "12", in(t, "b", "y", 4))
	stop(t, e)
	e = start(t, folder, Sink{Name: "a", Filter: "F2"})
	e.Resume(podsIn("b"))
	caughtUp(t, e, podsIn("b"), "14")
	stop(t, e)
	shares := []informer.Share{{Source: "pods in a", In: everything}, {Source: "pods in b", In: everything}}
	for n := range 2 {
		e = start(t, folder, Sink{Name: "a", Filter: "F2"})
		if n == 0 {
			e.TakeOver(pods, shares)
		}
		e.Resume(pods)
		expectKnown(t, e, "pods", "a", "10", "F1", "F2")
		kill(t, e)
	}
}

// Each change of the watch configuration has its own name, even if it restores an earlier configuration. The name
// survives restarts of any kind.
func TestAChangedWatchOverRestarts(t *testing.T) {
	folder := t.TempDir()
	names := map[string]bool{}
	last := ""
	for _, step := range []struct {
		watch string
		isNew bool
	}{{"A", false}, {"A", false}, {"B", true}, {"B", false}, {"A", true}, {"A", false}, {"B", true}} {
		e := startWatching(t, folder, step.watch, Sink{Name: "s"})
		if len(e.Remembered()) == 0 {
			begin(t, e, pods, "10")
		} else {
			e.Resume(pods)
		}
		change := e.Known("pods", "s").WatchChange
		if isNew := change != last; isNew != step.isNew || isNew && names[change] {
			t.Errorf("watch %s: the change has the name %q, after %q", step.watch, change, last)
		}
		last, names[change] = change, true
		kill(t, e)
	}
}

// A process ends while it sends the difference of a changed scope. The next process sends each sink an initial list,
// whatever it watches, because it cannot know which objects each sink was sent. It knows the objects that had entered,
// because sinks may have been sent them.
func TestAScopeThatChangesBeforeItsDifferenceWasSent(t *testing.T) {
	folder := t.TempDir()
	scoped := func(scope string) informer.Source {
		source := pods
		source.Scope = scope
		return source
	}
	resume := func(source informer.Source) (*Tracker, informer.Memory) {
		e := start(t, folder, Sink{Name: "a"}, Sink{Name: "b"})
		return e, e.Resume(source)
	}
	known := func(e *Tracker, floor string) {
		t.Helper()
		for _, sink := range []string{"a", "b"} {
			if got := e.Known("pods", sink); got.Floor != floor || got.Part != (floor == "") {
				t.Errorf("%s knows %+v, want %q", sink, got, floor)
			}
		}
	}
	e := start(t, folder, Sink{Name: "a"}, Sink{Name: "b"})
	begin(t, e, pods, "10", pod(t, "x", 3))
	stop(t, e)

	for n := range 2 {
		e, memory := resume(scoped("app=y"))
		if memory.Scope == "app=y" || memory.At != "10" {
			t.Fatalf("resumed at %s, scope %q", memory.At, memory.Scope)
		}
		known(e, []string{"10", ""}[n])
		r := e.Record(pods)
		if !r.Entering([]*object.Object{pod(t, "y", 7)}) {
			t.Fatal("what enters is not stored")
		}
		r.Added(pod(t, "y", 7))
		r.Deleted(pod(t, "x", 3))
		sentTo := send(e, scoped("app=y"), "a")
		send(e, scoped("app=y"), "b") // never delivered
		e.Settle("a", sentTo)
		r.Reached("20")
		if n == 0 {
			kill(t, e)
		} else {
			stop(t, e)
		}
	}

	e, memory := resume(pods) // as before all that
	if diff := cmp.Diff([]string{"x@3", "y@7"}, namesOf(memory.Known)); diff != "" || memory.Scope == "" {
		t.Errorf("scope %q: %s", memory.Scope, diff)
	}
	known(e, "")
	caughtUp(t, e, pods, "30")
	stop(t, e)

	e, memory = resume(pods)
	if memory.Scope != "" {
		t.Errorf("the change is over, but the scope is %q", memory.Scope)
	}
	known(e, "30")
	kill(t, e)
}

// The same applies when objects move from one source to another.
func TestTakeOverOfASourceThatIsLeft(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, podsIn("a"), "10", in(t, "a", "x", 3))
	stop(t, e)

	left := podsIn("a")
	left.Scope = "(none)"
	e = start(t, folder, Sink{Name: "s"})
	e.Resume(left)
	expectKnown(t, e, left.Name, "s", "10")
	kill(t, e)

	e = start(t, folder, Sink{Name: "s"})
	e.TakeOver(pods, []informer.Share{{Source: left.Name, In: everything}})
	e.Resume(pods)
	if got := e.Known("pods", "s"); !got.Part {
		t.Errorf("the sink knows %+v", got)
	}
	kill(t, e)
}

// A source takes over another one. What each of them says about earlier filters becomes one record: if one of them is
// known by the current filter and the other one is not, the current filter counts among the earlier ones.
func TestJoinedRefilters(t *testing.T) {
	open, other := ledger.Refilter{
		Filters: []string{"F1"},
		Change:  "c1",
	}, ledger.Refilter{
		Filters: []string{"F2"},
		Change:  "c2",
	}
	settled := func(r ledger.Refilter) ledger.Refilter { r.Settled = true; return r }
	none := ledger.Refilter{}
	both := func(settled bool, filters ...string) ledger.Refilter {
		return ledger.Refilter{Filters: filters, Change: "c2", Settled: settled}
	}
	for _, c := range []struct{ a, b, want ledger.Refilter }{
		{none, none, none},
		{open, other, both(false, "F1", "F2")},
		{none, other, both(false, "F2", "now")},
		{none, settled(other), both(true, "F2")},
		{settled(open), other, both(false, "F1", "F2", "now")},
		{settled(open), settled(other), both(true, "F1", "F2")},
	} {
		for range 2 {
			e := &Tracker{filters: map[string]string{"s": "now"}}
			state, from := ledger.State{Refilters: map[string]ledger.Refilter{}}, ledger.State{}
			if c.a.Change != "" {
				state.Refilters["s"] = c.a
			}
			if c.b.Change != "" {
				from.Refilters = map[string]ledger.Refilter{"s": c.b}
			}
			e.joinRefilters("s", &state, &from)
			if diff := cmp.Diff(c.want, state.Refilters["s"]); diff != "" {
				t.Errorf("%+v, %+v (-want +got):\n%s", c.a, c.b, diff)
			}
			c.a, c.b = c.b, c.a
		}
	}
}

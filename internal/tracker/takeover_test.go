package tracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// in returns an object of a namespace.
func in(t testing.TB, namespace, name string, version int) *object.Object {
	t.Helper()
	o := pod(t, name, version)
	o, err := object.New(
		[]byte(`{"metadata":{"namespace":"` + namespace + `",` + string(o.Raw)[len(`{"kind":"Pod","metadata":{`):]),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func podsIn(namespace string) informer.Source {
	source := pods
	source.Name, source.Namespace = "pods in "+namespace, namespace
	return source
}

func everything(string) bool { return true }

// Two namespaces were watched, and now all namespaces are. The new source takes over the rows of both, with the lower
// watermark. A sink that had settled both knows the new source. A sink that had begun only one of them is sent an
// initial list, and so is a new sink.
func TestTakeOver(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "both"}, Sink{Name: "one"})
	begin(t, e, podsIn("a"), "10", in(t, "a", "x", 3))
	if memory := e.Resume(podsIn("b")); memory.At != "" {
		t.Fatalf("resumed at %s", memory.At)
	}
	if !e.Record(podsIn("b")).FirstList([]*object.Object{in(t, "b", "y", 4)}, "20") {
		t.Fatal("the first list was not stored")
	}
	e.Ledger("pods in b").FinishList("both")
	send(e, podsIn("b"), "one")
	e.Record(podsIn("b")).Reached("20")
	stop(t, e)

	e = start(t, folder, Sink{Name: "both"}, Sink{Name: "one"}, Sink{Name: "new"})
	all := pods
	all.Scope = "(several)"
	shares := []informer.Share{{Source: "pods in a", In: everything}, {Source: "pods in b", In: everything}}
	e.queues = &disk{spilled: map[string]map[string]string{"pods in a": {"both": "15", "one": "15"}}}
	e.TakeOver(all, shares)
	memory := e.Resume(pods)
	if diff := cmp.Diff(
		[]string{"x@3", "y@4"},
		namesOf(memory.Known),
	); diff != "" || memory.At != "10" ||
		memory.Scope == "" {
		t.Errorf("at %s, scope %q: %s", memory.At, memory.Scope, diff)
	}
	want := map[string]Knowledge{"both": {Floor: "15"}, "one": {Part: true}, "new": {}}
	for sink, want := range want {
		if diff := cmp.Diff(want, e.Known("pods", sink)); diff != "" {
			t.Errorf("%s: %s", sink, diff)
		}
	}
	for _, o := range memory.Known {
		if raw, err := e.Record(pods).Fetch(o); err != nil || len(raw) == 0 {
			t.Errorf("%s: %v", o.Key(), err)
		}
	}
	if left := e.Remembered(); len(left) != 2 { // empty now; the set forgets them
		t.Errorf("left: %v", left)
	}
}

// The source that takes over has the history of the restored etcd, in which its events must be compared, even if
// another source has not detected the restore.
func TestTakeOverAfterARestoredEtcd(t *testing.T) {
	for _, restored := range [][]string{{"pods in a"}, {"pods in b"}, {"pods in a", "pods in b"}} {
		folder := t.TempDir()
		e := start(t, folder, Sink{Name: "s"})
		for _, namespace := range []string{"a", "b"} {
			source := podsIn(namespace)
			begin(t, e, source, "20", in(t, namespace, "x", 3))
			if slices.Contains(restored, source.Name) {
				e.Record(source).Gap("20", "10")
				e.Record(source).Reached("10")
			}
		}
		stop(t, e)
		e = start(t, folder, Sink{Name: "s"})
		e.TakeOver(pods, []informer.Share{{Source: "pods in a", In: everything}, {Source: "pods in b", In: everything}})
		e.Resume(pods)
		if history := e.Ledger("pods").History(); history != "10" {
			t.Errorf("restored %q: history %q", restored, history)
		}
	}
}

// Only a share is moved, and the rest of the source does not change.
func TestTakeOverAShare(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, pods, "10", in(t, "a", "x", 3), in(t, "b", "y", 4))
	stop(t, e)
	e = start(t, folder, Sink{Name: "s"})
	e.TakeOver(
		podsIn("a"),
		[]informer.Share{{Source: "pods", In: func(namespace string) bool { return namespace == "a" }}},
	)
	for source, want := range map[string]string{"pods": "y@4", "pods in a": "x@3"} {
		of := pods
		of.Name = source
		memory := e.Resume(of)
		if got := namesOf(
			memory.Known,
		); len(got) != 1 || got[0] != want || memory.At != "10" || memory.Scope != "" ||
			e.Known(source, "s").Floor != "10" {
			t.Errorf("%s: %v at %s of scope %q", source, got, memory.At, memory.Scope)
		}
	}
}

// A process was killed after it had taken over all rows of a source, and before it had removed the source. The
// knowledge of the sinks is kept.
func TestTakeOverOfASourceThatHasNoRowsLeft(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, pods, "10", in(t, "a", "x", 3))
	stop(t, e)
	shares := []informer.Share{{Source: "pods", In: func(namespace string) bool { return namespace == "a" }}}
	for n := range 2 {
		e = start(t, folder, Sink{Name: "s"})
		e.TakeOver(podsIn("a"), shares)
		memory := e.Resume(podsIn("a"))
		if got := namesOf(memory.Known); len(got) != 1 || got[0] != "x@3" || e.Known("pods in a", "s").Floor != "10" {
			t.Errorf("process %d: %v, the sink knows %+v", n, got, e.Known("pods in a", "s"))
		}
		nobody := pods
		nobody.Scope = "(none)"
		e.Resume(nobody)
		kill(t, e)
	}
}

// rowsOf returns the rows of a source in the store, and the state of the source.
func rowsOf(t *testing.T, e *Tracker, source string) (rows []string, state ledger.State) {
	t.Helper()
	state, objects, err := e.store.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		rows = append(rows, o.Key()+"@"+o.ResourceVersion)
	}
	return rows, state
}

// Of two rows of one object, the later row is kept. Rows that are in no share stay in their source.
func TestTakeOverOfTheSameObjects(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, pods, "10", in(t, "a", "x", 1), in(t, "b", "x", 2), in(t, "c", "x", 3))
	begin(t, e, podsIn("alone"), "11", in(t, "a", "x", 7), in(t, "b", "x", 1), in(t, "b", "y", 5))
	stop(t, e)
	taken := func(namespace string) bool { return namespace != "c" }
	shares := []informer.Share{
		{Source: "pods", In: taken}, {Source: "pods in alone", In: taken}, {Source: "unknown", In: taken},
	}
	for range 2 { // the second time there is nothing left
		e = start(t, folder, Sink{Name: "s"})
		into := podsIn("new")
		into.Scope, into.Defined = "a scope", true
		e.TakeOver(into, shares)
		rows, state := rowsOf(t, e, "pods in new")
		if diff := cmp.Diff([]string{"a/x@7", "b/x@2", "b/y@5"}, rows); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
		want := ledger.State{
			Source: into, ResourceVersion: "10", Sinks: map[string]string{"s": "10"},
		}
		if diff := cmp.Diff(want, state); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		rows, state = rowsOf(t, e, "pods")
		if diff := cmp.Diff(
			[]string{"c/x@3"},
			rows,
		); diff != "" || state.ResourceVersion != "10" ||
			state.Sinks["s"] != "10" {
			t.Errorf("what is left: %s %v", diff, state)
		}
		if rows, _ = rowsOf(t, e, "pods in alone"); len(rows) != 0 {
			t.Errorf("left: %v", rows)
		}
		kill(t, e)
	}
}

// interrupted is a store whose process ends after some commits.
type interrupted struct {
	*checkpoint.Store

	commits int
	end     context.CancelFunc
}

func (s *interrupted) Commit(updates []ledger.Update, filters map[string]string, at map[string]sinks.Positions) error {
	if s.commits--; s.commits < 0 {
		s.end()
		return errors.New("the process has ended")
	}
	return s.Store.Commit(updates, filters, at)
}

// Shares that do not fit into one transaction: after each transaction, every row exists exactly once, and no scope is
// stored too early.
func TestTakeOverOfMuch(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	var objects []*object.Object
	for n := range 10 {
		o, err := object.New(
			fmt.Appendf(nil, `{"metadata":{"name":"o%d","namespace":"a","resourceVersion":"1","uid":"u%d"},"data":%q}`,
				n, n, strings.Repeat("x", partBytes/4)),
		)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	begin(t, e, pods, "10", objects...)
	stop(t, e)
	e = start(t, folder, Sink{Name: "s"})
	ctx, cancel := context.WithCancel(t.Context())
	e.reading, e.store = ctx, &interrupted{e.store.(*checkpoint.Store), 2, cancel}
	into := podsIn("a")
	into.Scope = "(several)"
	shares := []informer.Share{{Source: "pods", In: everything}}
	e.TakeOver(into, shares)
	old, _ := rowsOf(t, e, "pods")
	moved, state := rowsOf(t, e, "pods in a")
	if len(old) == 0 || len(moved) == 0 || len(old)+len(moved) != len(objects) || state.Source.Scope != "(several)" {
		t.Errorf("%d and %d rows, scope %q", len(old), len(moved), state.Source.Scope)
	}
	kill(t, e)
	e = start(t, folder, Sink{Name: "s"})
	e.TakeOver(into, shares)
	moved, state = rowsOf(t, e, "pods in a")
	if len(moved) != len(objects) || state.Source.Scope != "(several)" {
		t.Errorf("%d rows, scope %q", len(moved), state.Source.Scope)
	}
}

// If a process is killed while it takes over, the next process still detects that an earlier one was killed while the
// scope changed.
func TestTakeOverWhileTheScopeChanges(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, pods, "10", in(t, "a", "x", 3))
	begin(t, e, podsIn("a"), "10")
	stop(t, e)
	e = start(t, folder, Sink{Name: "s"})
	into := podsIn("a")
	into.Scope = "new"
	e.Resume(into)
	kill(t, e)
	e = start(t, folder, Sink{Name: "s"})
	ctx, cancel := context.WithCancel(t.Context())
	e.reading, e.store = ctx, &interrupted{e.store.(*checkpoint.Store), 1, cancel}
	into.Scope = "(several)"
	e.TakeOver(into, []informer.Share{{Source: "pods", In: everything}})
	if rows, state := rowsOf(t, e, "pods in a"); len(rows) != 1 || state.Source.Scope != changingTo+"new" {
		t.Errorf("%d rows, scope %q", len(rows), state.Source.Scope)
	}
}

// unreadable is a store that cannot read one source.
type unreadable struct {
	Store

	source string
}

func (s unreadable) Load(source string) (ledger.State, []*object.Object, error) {
	if source == s.source {
		return ledger.State{}, nil, errors.New("damaged")
	}
	return s.Store.Load(source)
}

// If not all rows of a source can be taken over, the source is new, and none of its objects count as known.
func TestTakeOverOfADamagedSource(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, podsIn("a"), "10", in(t, "a", "x", 3))
	begin(t, e, podsIn("b"), "10", in(t, "b", "y", 4))
	stop(t, e)
	e = start(t, folder, Sink{Name: "s"})
	e.store = unreadable{e.store, "pods in b"}
	e.TakeOver(pods, []informer.Share{{Source: "pods in a", In: everything}, {Source: "pods in b", In: everything}})
	if memory := e.Resume(pods); memory.At != "" || len(memory.Known) > 0 || e.Known("pods", "s").Knows() {
		t.Errorf("resumed at %q with %d rows", memory.At, len(memory.Known))
	}
}

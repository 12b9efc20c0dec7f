package tracker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// in makes an object of a namespace.
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

// What was watched in two namespaces is watched in all of them: what is known of both counts, as far as the one goes
// that is further back. A sink that had settled both knows it, one that had begun with one is sent an initial list, and
// so is a new one.
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

// Only a share goes, and what is left of the source stays as it was.
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

// A process was killed after it had taken over all rows of a source, and before it had forgotten the source: what sinks
// know goes on to count.
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

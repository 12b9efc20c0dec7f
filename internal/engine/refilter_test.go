package engine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// labelled is a pod with its uid as name and the filters that it passes as labels.
func labelled(t *testing.T, uid string, rv int, passes string) *object.Object {
	t.Helper()
	o, err := object.New(
		fmt.Appendf(
			nil,
			`{"metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d"},"passes":%q}`,
			uid,
			uid,
			rv,
			passes,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// refiltering returns a listener of a sink that now has the filter "3", and that may know the known objects that pass
// earlier filters.
func refiltering(
	t *testing.T,
	floor string,
	knows bool,
	known map[string]*object.Object,
	earlier ...string,
) (*pipeline, *listener) {
	t.Helper()
	passing := func(n string) filter.Rule { return filter.Rule{When: fmt.Sprintf("object.passes.contains(%q)", n)} }
	p := pipelineFor(t, roomy, passing("3"))
	l := listen(t.Context(), p)
	l.floor, l.position, l.inList = floor, "10", false
	l.refilter = &refilter{knows: knows, change: "c", sent: map[types.UID]bool{}, objects: func() (all []*object.Object) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			if known[name] != nil {
				all = append(all, known[name])
			}
		}
		return all
	}}
	for _, n := range earlier {
		compiled, mistakes := filter.Compile(
			[]filter.Rule{passing(n)},
			filter.Options{Slot: object.Slots, Logger: p.Log},
		) // what they decide is not remembered
		if len(mistakes) > 0 {
			t.Fatal(mistakes)
		}
		l.refilter.earlier = append(l.refilter.earlier, compiled.For(pods))
	}
	return p, l
}

func expectTaken(t *testing.T, p *pipeline, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, taken(t, p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The previous process may have sent objects before the filter was changed that the checkpoint does not contain. Their
// leaves are sent if the destination has the objects, until the informer has delivered all changes that the previous
// process may have sent.
func TestRefilterOfWhatOnlyTheDestinationKnows(t *testing.T) {
	p, l := refiltering(t, "10", true, nil, "1")
	l.OnSynced("10", 0)
	change := func(old, now *object.Object) {
		if old == nil {
			l.OnAdd(now, false)
		} else {
			l.OnUpdate(old, now)
		}
		l.OnPosition(now.ResourceVersion)
	}
	former, neither := labelled(t, "a", 11, "1"), labelled(t, "b", 12, "2")
	change(nil, former)
	change(nil, neither)
	change(neither, labelled(t, "b", 13, "12"))
	change(former, labelled(t, "a", 14, "3"))
	l.OnPosition("15") // after a bookmark, or a change to an object that is not selected
	change(nil, labelled(t, "c", 16, "1"))
	l.OnDelete(labelled(t, "b", 13, "12")) // a list shows it
	l.OnCaughtUp()
	l.OnPosition("17")
	change(nil, labelled(t, "d", 18, "1"))
	expectTaken(
		t,
		p,
		"synced synced.c.pods.10",
		"deleted a.11.left.filter.c left at 11 if found",
		"deleted b.13.left.filter.c left at 13 if found",
		"added a.14",
		"deleted c.16.left.filter.c left at 16 if found",
		"deleted b.deleted if found",
	)
}

// The filter was changed twice: objects that passed one of the earlier filters and do not pass the current one are sent
// as left.
func TestRefilterOfAChain(t *testing.T) {
	known := map[string]*object.Object{}
	for n, passes := range []string{"123", "1", "2", "3", "13", "23", "12", ""} {
		name := string(rune('a' + n))
		known[name] = labelled(t, name, n+1, passes)
	}
	p, l := refiltering(t, "10", true, known, "1", "2")
	l.OnAdd(known["d"], true) // is given with the rest
	l.OnSynced("10", 8)
	expectTaken(
		t,
		p,
		"deleted b.2.left.filter.c left at 2",
		"deleted c.3.left.filter.c left at 3",
		"added d.4.filter.c initial",
		"added e.5.filter.c initial",
		"added f.6.filter.c initial",
		"deleted g.7.left.filter.c left at 7",
		"synced synced.c.pods.10",
	)
	if open, _ := l.ledger.Unsettled("test"); l.refilter != nil || open != 7 {
		t.Error("it does not end")
	}

	// A sink that does not know the source is sent all its objects, and leaves for objects that it may have been sent
	// in an earlier initial list.
	p, l = refiltering(t, "", false, map[string]*object.Object{"a": known["a"], "b": known["b"]}, "1")
	l.OnSynced("10", 2)
	expectTaken(t, p, "added a.1.filter.c initial", "deleted b.2.left.filter.c left at 2", "synced synced.c.pods.10")
}

// A sink that is ahead of the rows is sent the difference when the informer has reached the floor. The states in the
// difference are then not older than the states that the sink was sent.
func TestRefilterWaitsForTheFloor(t *testing.T) {
	rows := map[string]*object.Object{
		"a": labelled(t, "a", 1, "1"),
		"b": labelled(t, "b", 2, "1"),
		"c": labelled(t, "c", 3, "1"),
	}
	p, l := refiltering(t, "12", true, rows, "1")
	l.OnSynced("10", 3)
	update := func(now *object.Object) {
		l.OnUpdate(rows[now.Name], now)
		rows[now.Name] = now
		l.OnPosition(now.ResourceVersion)
	}
	update(labelled(t, "a", 11, "1"))
	expectTaken(t, p)
	update(labelled(t, "b", 12, "13"))
	expectTaken(
		t,
		p,
		"deleted a.11.left.filter.c left at 11",
		"deleted c.3.left.filter.c left at 3",
		"synced synced.c.pods.12",
	)
	update(labelled(t, "a", 13, "3"))
	expectTaken(t, p, "added a.13")

	// The next change is beyond the floor: it is sent as what it is between the old and the new filter.
	p, l = refiltering(t, "12", true, rows, "1")
	rows["b"] = labelled(t, "b", 12, "1")
	l.OnSynced("10", 3)
	update(labelled(t, "b", 15, ""))
	expectTaken(
		t,
		p,
		"deleted b.15.left.filter.c left at 15",
		"added a.13.filter.c initial",
		"deleted c.3.left.filter.c left at 3",
		"synced synced.c.pods.15",
	)
}

// The API server's history no longer reaches back to the floor: the objects in the list are compared by both filters.
func TestRefilterOverAGap(t *testing.T) {
	rows := map[string]*object.Object{
		"a": labelled(t, "a", 1, "1"),
		"b": labelled(t, "b", 2, "1"),
		"c": labelled(t, "c", 3, "1"),
		"d": labelled(t, "d", 4, "1"),
	}
	p, l := refiltering(t, "12", true, rows, "1")
	l.OnSynced("10", 3)
	l.OnGap("10", "20", "gone")
	gone := *rows["a"]
	gone.FinalStateUnknown = true
	l.OnDelete(&gone)
	delete(rows, "a")
	for _, now := range []*object.Object{labelled(t, "b", 11, "3"), labelled(t, "c", 15, ""), labelled(t, "e", 16, "3")} {
		if old := rows[now.Name]; old != nil {
			l.OnUpdate(old, now)
		} else {
			l.OnAdd(now, false)
		}
		rows[now.Name] = now
	}
	l.OnPosition("20")
	expectTaken(
		t,
		p,
		"gap gap.c.pods.relist.10.20",
		"deleted a.deleted",
		"updated b.11",
		"deleted c.15.left.filter.c left at 15",
		"added e.16.filter.c",
		"deleted d.4.left.filter.c left at 4",
		"synced synced.c.pods.20",
	)
}

// If the new filter excludes a whole resource, a leave is sent for each object.
func TestRefilterOfAResourceThatIsLeftOut(t *testing.T) {
	o := labelled(t, "a", 1, "1")
	p, l := refiltering(t, "10", true, map[string]*object.Object{"a": o}, "1")
	none, mistakes := filter.Compile([]filter.Rule{{Resources: []string{"secrets"}}}, filter.Options{Logger: p.Log})
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	l.filter = none.For(pods)
	if !l.filter.Never() {
		t.Fatal("pods pass")
	}
	l.OnSynced("10", 1)
	expectTaken(t, p, "deleted a.1.left.filter.c left at 1", "synced synced.c.pods.10")
	if l.refilter != nil {
		t.Error("it does not end")
	}
}

// The watched scope changes together with the filter: the difference is computed from the objects in the list. An
// object that is no longer watched leaves if it may have passed any of the filters.
func TestRefilterOfAnotherScope(t *testing.T) {
	rows := map[string]*object.Object{}
	for n, passes := range []string{"1", "1", "3", "2", "13"} {
		name := string(rune('a' + n))
		rows[name] = labelled(t, name, n+1, passes)
	}
	p, l := refiltering(t, "", true, rows, "1")
	l.inList = true
	l.OnAdd(rows["b"], true)
	l.OnSynced("10", 1)
	expectTaken(t, p)
	l.OnGap("10", "20", "listed")
	l.OnLeave(rows["a"], rows["a"])
	l.OnLeave(rows["c"], labelled(t, "c", 17, "3")) // an earlier process may have sent it by the present filter
	l.OnLeave(rows["d"], rows["d"])
	for _, name := range []string{"a", "c", "d"} {
		delete(rows, name)
	}
	l.OnPosition("20")
	expectTaken(t, p, "gap gap.c.pods.relist.10.20", "deleted a.1.left left at 1", "deleted c.17.left left at 17",
		"deleted b.2.left.filter.c left at 2", "synced synced.c.pods.20")
	if l.refilter != nil || l.inList {
		t.Error("it does not end")
	}
}

// Additions and leaves that a changed watch causes have ids of their own, as with a changed filter. Other changes in
// the list, and changes after the list, have ordinary ids.
func TestIDsOfAnotherScope(t *testing.T) {
	p := pipelineFor(t, roomy)
	l := listen(t.Context(), p)
	l.floor, l.position, l.inList, l.watchChange, l.entering = "", "10", true, "w", true
	a, b, c := labelled(t, "a", 1, ""), labelled(t, "b", 2, ""), labelled(t, "c", 3, "")
	l.OnGap("10", "20", "listed")
	l.OnLeave(a, a)
	l.OnLeave(b, labelled(t, "b", 17, ""))
	l.OnUpdate(c, labelled(t, "c", 18, ""))
	l.OnAdd(labelled(t, "d", 4, ""), false)
	l.OnPosition("20")
	l.OnAdd(labelled(t, "e", 21, ""), false)
	l.OnPosition("21")
	l.OnGap("21", "30", "listed again")
	l.OnAdd(labelled(t, "f", 25, ""), false)
	l.OnPosition("30")
	expectTaken(
		t,
		p,
		"gap gap.c.pods.relist.10.20",
		"deleted a.1.left.filter.w left at 1",
		"deleted b.17.left left at 17",
		"updated c.18",
		"added d.4.filter.w",
		"added e.21",
		"gap gap.c.pods.relist.21.30",
		"added f.25",
	)
}

// The earlier filter in the checkpoint is restored unchanged. If it let everything pass, leaves would be sent for
// objects that were never sent.
func TestAnEarlierFilterIsReadBack(t *testing.T) {
	text := filterText([]filter.Rule{{Resources: []string{"pods"}, When: `object.passes.contains("1")`}})
	if want := `[{"Resources":["pods"],"Namespaces":null,"Operations":null,"When":"object.passes.contains(\"1\")","IgnoreChanges":null,"OnlyChanges":null,"Preset":""}]`; text != want {
		t.Errorf("the checkpoint has %s, want %s", text, want)
	}
	p := pipelineFor(t, roomy)
	old, err := p.compileOld(text)
	if err != nil {
		t.Fatal(err)
	}
	for passes, want := range map[string]bool{"1": true, "2": false} {
		if got := old.For(pods).Belongs(labelled(t, "a", 1, passes)); got != want {
			t.Errorf("an object that passes %s belongs: %t", passes, got)
		}
	}
	if _, err := p.compileOld("{"); err == nil {
		t.Error("a damaged filter is read")
	}
}

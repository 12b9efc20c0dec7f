package informer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// labelled makes one state of an object with a label.
func labelled(t testing.TB, name, uid string, rv int, team string) *object.Object {
	t.Helper()
	o, err := object.New(
		fmt.Appendf(
			nil,
			`{"metadata":{"name":%q,"namespace":"a","uid":%q,"resourceVersion":"%d","labels":{"team":%q}}}`,
			name,
			uid,
			rv,
			team,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// leaves is a journal that tells leaves from deletions.
type leaves struct{ journal }

func (l *leaves) OnLeave(last, now *object.Object) {
	l.note("leave %s@%s", label(last), now.ResourceVersion)
}

func teams(teams string) func(*object.Object) bool {
	return func(o *object.Object) bool { return strings.Contains(teams, o.GetLabels()["team"]) }
}

// b selects the namespace b.
func b(namespace string) bool { return namespace == "b" }

// The selectors of the watched scope have changed: known objects are compared with a list. New handlers receive the
// objects in the list, and none of the objects that were known before.
func TestOtherSelectors(t *testing.T) {
	i := New(Config{
		Source: Source{Resource: configMaps, LabelSelector: "team in (b,c)"},
		Known: []*object.Object{
			labelled(t, "stays", "u1", 1, "b"), labelled(t, "left", "u2", 2, "a"), labelled(t, "gone", "u3", 3, "b"),
			labelled(t, "comes", "u4", 4, "a"), labelled(t, "out-and-gone", "u5", 5, "a"),
		},
		ResumeAt: "10", Relist: true, Within: teams("bc"),
	})
	expectOtherScope(t, i, list(
		labelled(t, "stays", "u1", 1, "b"), labelled(t, "comes", "u4", 12, "b"), labelled(t, "new", "u6", 6, "c"),
	), []string{
		"gap 10..13",
		"leave a/left(u2)@2@2", "delete a/gone(u3)@3 unseen=true", "leave a/out-and-gone(u5)@5@5", // nobody knows better
	}, []string{
		"add a/new(u6)@6 initial=false", "update a/comes(u4)@4 -> a/comes(u4)@12",
	}, []string{
		"add a/stays(u1)@1 initial=true", "add a/new(u6)@6 initial=true", "add a/comes(u4)@12 initial=true",
		"synced 13, 3 objects",
	})
}

// The namespaces of the watched scope have changed. The list also has the objects of the others.
func TestOtherNamespaces(t *testing.T) {
	i := New(Config{
		Source: Source{Resource: configMaps},
		Known: []*object.Object{
			state(t, "b", "stays", "u1", 1), state(t, "a", "left", "u2", 2), state(t, "b", "gone", "u3", 3),
			state(t, "b", "changes", "u4", 4), state(t, "a", "out-and-gone", "u5", 5), state(t, "a", "replaced", "u7", 7),
		},
		ResumeAt: "10", Relist: true, Select: b,
	})
	expectOtherScope(t, i, list(
		state(t, "b", "stays", "u1", 1), state(t, "b", "changes", "u4", 12), state(t, "b", "new", "u6", 6),
		state(t, "a", "left", "u2", 11), state(t, "a", "replaced", "u8", 13), state(t, "a", "never", "u9", 9),
		state(t, "a", "left", "u2", 12), // the pages of an aggregated API may overlap
	), []string{
		"gap 10..13", "delete b/gone(u3)@3 unseen=true", "delete a/out-and-gone(u5)@5 unseen=true",
		"leave a/left(u2)@2@11", "delete a/replaced(u7)@7 unseen=true",
	}, []string{
		"add b/new(u6)@6 initial=false", "update b/changes(u4)@4 -> b/changes(u4)@12",
	}, []string{
		"add b/stays(u1)@1 initial=true", "add b/new(u6)@6 initial=true", "add b/changes(u4)@12 initial=true",
		"synced 13, 3 objects",
	})
}

// expectOtherScope gives an informer a list, and compares what handlers receive: those that know the objects of the
// earlier scope, those that may know them, and those that do not. missing is what is sent about the earlier scope, and
// changes what is sent about the list, first an addition.
func expectOtherScope(t *testing.T, i *Informer, items []any, missing, changes, initial []string) {
	t.Helper()
	old, fresh, changed := &leaves{}, &leaves{}, &leaves{}
	i.AddEventHandler(old)
	i.AddEventHandlerWithReplay(fresh, false)
	i.AddEventHandlerWithReplay(changed, true)
	i.replay()
	for _, j := range []*leaves{old, fresh, changed} {
		expect(t, &j.journal)
	}
	do(t, (*store)(i).Replace(items, "13"))
	expect(t, &old.journal, slices.Concat(missing, changes)...)
	expect(t, &changed.journal, slices.Concat(missing, changes[1:], initial)...)
	expect(t, &fresh.journal, slices.Concat(missing[:1], initial)...)
	if status := i.Status(); status.Relists != 0 || status.Objects != 3 {
		t.Errorf("%+v", status)
	}
}

// A handler that does not distinguish leaves from deletions is given deletions.
func TestLeaveOfAPlainHandler(t *testing.T) {
	i, plain := New(Config{
		Source: Source{Resource: configMaps}, Known: []*object.Object{state(t, "a", "left", "u", 1)}, ResumeAt: "10",
		Relist: true, Select: b,
	}), &journal{}
	i.AddEventHandler(plain)
	i.replay()
	do(t, (*store)(i).Replace(list(state(t, "a", "left", "u", 11)), "13"))
	expect(t, plain, "gap 10..13", "delete a/left(u)@1 unseen=false")
}

// entries is a record that notes what enters, and takes it or not.
type entries struct {
	noRecord
	journal *leaves
	takes   bool
}

func (e entries) Entering(objects []*object.Object) bool {
	for _, o := range objects {
		e.journal.note("enters %s", label(o))
	}
	return e.takes
}

// What is new in the list of another scope is stored before anything of the difference is handed on, or nothing is.
func TestWhatEntersIsStoredFirst(t *testing.T) {
	for _, takes := range []bool{true, false} {
		told := &leaves{}
		known := []*object.Object{
			labelled(t, "stays", "u1", 1, "b"),
			labelled(t, "again", "u2", 2, "b"),
			labelled(t, "left", "u3", 3, "a"),
		}
		i := New(Config{
			Source: Source{
				Resource: configMaps,
			},
			Known:    known,
			ResumeAt: "10",
			Relist:   true,
			Record:   entries{journal: told, takes: takes},
		})
		i.AddEventHandler(told)
		i.replay()
		do(
			t,
			(*store)(
				i,
			).Replace(list(labelled(t, "stays", "u1", 1, "b"), labelled(t, "new", "u4", 4, "b"), labelled(t, "again", "u5", 11, "b")), "13"),
		)
		want := []string{"enters a/new(u4)@4"}
		if takes {
			want = append(want, "gap 10..13", "delete a/left(u3)@3 unseen=true", "add a/new(u4)@4 initial=false",
				"delete a/again(u2)@2 unseen=true", "add a/again(u5)@11 initial=false")
		}
		expect(t, &told.journal, want...)
		if i.HasSynced() != takes {
			t.Errorf("synced: %t", i.HasSynced())
		}
	}
}

// A list of nothing at the known resourceVersion is not taken for what a resuming informer is given in place of a list.
func TestAnotherScopeHasNothing(t *testing.T) {
	i, told := New(
		Config{
			Source:   Source{Resource: configMaps},
			Known:    []*object.Object{labelled(t, "x", "u1", 1, "a")},
			ResumeAt: "10",
			Relist:   true,
			Select:   b,
		},
	), &leaves{}
	i.AddEventHandler(told)
	i.replay()
	do(t, (*store)(i).Replace(list(), "10"))
	expect(t, &told.journal, "delete a/x(u1)@1 unseen=true")
}

// A source that nobody watches any more: who was told of its objects is told that they left.
func TestNobodyWatchesASource(t *testing.T) {
	i := New(
		Config{Source: Source{Resource: configMaps}, Known: []*object.Object{labelled(t, "x", "u1", 1, "a")}, ResumeAt: "10"},
	)
	old, fresh, changed := &leaves{}, &leaves{}, &leaves{}
	i.AddEventHandler(old)
	i.AddEventHandlerWithReplay(fresh, false)
	i.AddEventHandlerWithReplay(changed, true)
	i.LeaveAll()
	expect(t, &old.journal, "leave a/x(u1)@1@1")
	expect(t, &fresh.journal)
	expect(t, &changed.journal, "leave a/x(u1)@1@1")
}

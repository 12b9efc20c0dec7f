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

// What is selected here, and not by the API server, is one object whatever selects it, and leaves when nothing does.
func TestLeaves(t *testing.T) {
	i, told, plain := New(Config{Source: Source{Resource: configMaps}, Select: teams("ab")}), &leaves{}, &journal{}
	i.AddEventHandler(told)
	s := (*store)(i)
	do(t, s.Replace(list(labelled(t, "x", "u1", 1, "a"), labelled(t, "y", "u2", 2, "c")), "3"))
	do(t, s.Update(labelled(t, "x", "u1", 4, "b")))
	do(t, s.Update(labelled(t, "y", "u2", 5, "c")))
	do(t, s.Update(labelled(t, "x", "u1", 6, "c")))
	do(t, s.Update(labelled(t, "x", "u1", 7, "c")))
	do(t, s.Update(labelled(t, "x", "u1", 8, "a")))
	do(t, s.Delete(labelled(t, "y", "u2", 9, "c")))
	expect(
		t,
		&told.journal,
		"add a/x(u1)@1 initial=true",
		"synced 3, 1 objects",
		"update a/x(u1)@1 -> a/x(u1)@4",
		"leave a/x(u1)@4@6",
		"add a/x(u1)@8 initial=false",
	)

	do(t, s.Add(labelled(t, "z", "u3", 10, "a")))
	do(t, s.Add(labelled(t, "w", "u5", 10, "a")))
	i.AddEventHandler(plain)
	told.take()
	plain.take()
	// One leaves unseen, one is another object by then, and one is gone.
	do(t, s.Replace(list(labelled(t, "x", "u1", 11, "c"), labelled(t, "z", "u4", 12, "c")), "13"))
	expect(
		t,
		&told.journal,
		"gap 3..13",
		"delete a/w(u5)@10 unseen=true",
		"leave a/x(u1)@8@11",
		"delete a/z(u3)@10 unseen=true",
	)
	expect(
		t,
		plain,
		"gap 3..13",
		"delete a/w(u5)@10 unseen=true",
		"delete a/x(u1)@8 unseen=false",
		"delete a/z(u3)@10 unseen=true",
	)
}

// The watched scope has changed: known objects are compared with a list. New handlers receive the objects in the list,
// and none of the objects that were known before.
func TestAnotherScope(t *testing.T) {
	for _, selected := range []bool{false, true} {
		t.Run(fmt.Sprintf("selected by the API server %t", selected), func(t *testing.T) {
			known := []*object.Object{
				labelled(t, "stays", "u1", 1, "b"), labelled(t, "left", "u2", 2, "a"), labelled(t, "gone", "u3", 3, "b"),
				labelled(t, "comes", "u4", 4, "a"), labelled(t, "out-and-gone", "u5", 5, "a"),
			}
			config := Config{
				Source:   Source{Resource: configMaps},
				Known:    known,
				ResumeAt: "10",
				Relist:   true,
				Within:   teams("bc"),
			}
			items := list(
				labelled(t, "stays", "u1", 1, "b"),
				labelled(t, "comes", "u4", 12, "b"),
				labelled(t, "new", "u6", 6, "c"),
			)
			outAndGone := "delete a/out-and-gone(u5)@5 unseen=true"
			if selected {
				config.Source.LabelSelector = "team in (b,c)"
				outAndGone = "leave a/out-and-gone(u5)@5@5" // nobody knows better
			} else {
				config.Select = teams("bc")
				items = append(items, labelled(t, "left", "u2", 11, "a"))
			}
			i := New(config)
			old, fresh, changed := &leaves{}, &leaves{}, &leaves{}
			i.AddEventHandler(old)
			i.AddEventHandlerWithReplay(fresh, false)
			i.AddEventHandlerWithReplay(changed, true)
			i.replay()
			for _, j := range []*leaves{old, fresh, changed} {
				expect(t, &j.journal)
			}

			do(t, (*store)(i).Replace(items, "13"))
			left := "leave a/left(u2)@2@11"
			if selected {
				left = "leave a/left(u2)@2@2"
			}
			gone, comes, added := "delete a/gone(u3)@3 unseen=true", "update a/comes(u4)@4 -> a/comes(u4)@12", "add a/new(u6)@6 initial=false"
			all := []string{"gap 10..13", gone, outAndGone, left, added, comes}
			if selected {
				all = []string{"gap 10..13", left, gone, outAndGone, added, comes}
			}
			expect(t, &old.journal, all...)
			initial := []string{
				"add a/stays(u1)@1 initial=true",
				"add a/new(u6)@6 initial=true",
				"add a/comes(u4)@12 initial=true",
				"synced 13, 3 objects",
			}
			expect(t, &changed.journal, slices.Concat(all[:len(all)-2], []string{comes}, initial)...)
			expect(t, &fresh.journal, append([]string{"gap 10..13"}, initial...)...)
			if status := i.Status(); status.Relists != 0 || status.Objects != 3 {
				t.Errorf("%+v", status)
			}
		})
	}
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
			Select:   teams("b"),
			Within:   teams("b"),
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

// The pages of an aggregated API may overlap.
func TestAListContainsAnObjectTwice(t *testing.T) {
	i, j := New(Config{Source: Source{Resource: configMaps}, Select: teams("blue")}), &leaves{}
	i.AddEventHandler(j)
	do(t, (*store)(i).Replace(list(labelled(t, "a", "u", 1, "blue")), "1"))
	left := labelled(t, "a", "u", 2, "red")
	do(t, (*store)(i).Replace(list(left, left), "3"))
	expect(t, &j.journal, "add a/a(u)@1 initial=true", "synced 1, 1 objects", "gap 1..3", "leave a/a(u)@1@2")
}

// A list of nothing at the known resourceVersion is not taken for what a resuming informer is given in place of a list.
func TestAnotherScopeHasNothing(t *testing.T) {
	i, told := New(
		Config{
			Source:   Source{Resource: configMaps},
			Known:    []*object.Object{labelled(t, "x", "u1", 1, "a")},
			ResumeAt: "10",
			Relist:   true,
			Select:   teams("b"),
			Within:   teams("b"),
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

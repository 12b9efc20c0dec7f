package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

func inNamespaces(namespaces ...string) func(string) bool {
	return func(key string) bool {
		namespace, _, _ := strings.Cut(key, "/")
		return slices.Contains(namespaces, namespace)
	}
}

// heldOf gives what a store holds of a source: its rows, and what it says of them.
func heldOf(t *testing.T, s *Store, name string) (rows []string, state ledger.State) {
	t.Helper()
	state, objects, err := load(s, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		rows = append(rows, o.Key()+"@"+o.ResourceVersion)
	}
	return rows, state
}

func TestTakeOver(t *testing.T) {
	folder := t.TempDir()
	s := begin(t, folder)
	everywhere, alone := testSource("all"), testSource("alone")
	objects := []*object.Object{small(t, "a", "x", "1"), small(t, "b", "x", "2"), small(t, "c", "x", "3")}
	sinks := map[string]string{"sink": "12"}
	if err := s.Commit([]ledger.Update{
		{State: ledger.State{Source: everywhere, ResourceVersion: "10", Sinks: sinks}, Upserts: objects},
		{
			State:   ledger.State{Source: alone, ResourceVersion: "11", Sinks: sinks},
			Upserts: []*object.Object{small(t, "a", "x", "7"), small(t, "b", "x", "1"), small(t, "b", "y", "5")},
		},
	}, map[string]string{"sink": "{}"}); err != nil {
		t.Fatal(err)
	}
	into := ledger.State{Source: testSource("new"), ResourceVersion: "10", Sinks: map[string]string{"sink": "11"}}
	into.Source.Scope, into.Source.Defined = "a scope", true
	shares := []ledger.Share{
		{Source: "all", Has: inNamespaces("a", "b")},
		{Source: "alone", Has: inNamespaces("a", "b")},
		{Source: "unknown", Has: inNamespaces("a")},
	}
	for range 2 { // the second time there is nothing left
		if err := s.TakeOver(into, shares); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		rows, state := heldOf(t, s, "new")
		if diff := cmp.Diff([]string{"a/x@7", "b/x@2", "b/y@5"}, rows); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(into, state); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		rows, state = heldOf(t, s, "all")
		if diff := cmp.Diff(
			[]string{"c/x@3"},
			rows,
		); diff != "" || state.ResourceVersion != "10" ||
			state.Sinks["sink"] != "12" {
			t.Errorf("what is left: %s %v", diff, state)
		}
		if rows, _ = heldOf(t, s, "alone"); len(rows) != 0 {
			t.Errorf("left: %v", rows)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = begin(t, folder)
	}
}

// Shares that do not fit into one transaction: after each of them all rows are there, once, and no scope is claimed too
// early.
func TestTakeOverOfMuch(t *testing.T) {
	s := begin(t, t.TempDir())
	var objects []*object.Object
	for n := range 40 {
		raw := fmt.Sprintf(
			`{"metadata":{"name":"o%02d","namespace":"a","resourceVersion":"1","uid":"u%d"},"data":"%x"}`,
			n,
			n,
			noise(byte(n), 150<<10),
		)
		objects = append(objects, newObject(t, raw))
	}
	if err := s.Commit(
		[]ledger.Update{{State: ledger.State{Source: testSource("old"), ResourceVersion: "10"}, Upserts: objects}},
		nil,
	); err != nil {
		t.Fatal(err)
	}
	into := ledger.State{Source: testSource("new"), ResourceVersion: "10"}
	into.Source.Scope = "a scope"
	unfinished, all := into, ledger.Share{Source: "old", Has: func(string) bool { return true }}
	unfinished.Source.Scope = scopeUnfinished
	more := false
	err := s.write(func(tx *transaction) (err error) {
		if err = tx.apply(&ledger.Update{State: unfinished}); err == nil {
			more, err = tx.move(all, "new")
		}
		return err
	})
	if err != nil || !more { // and a crash after that
		t.Fatalf("more %t, %v", more, err)
	}
	old, _ := heldOf(t, s, "old")
	moved, state := heldOf(t, s, "new")
	if len(old) == 0 || len(moved) == 0 || len(old)+len(moved) != len(objects) || state.Source.Scope != scopeUnfinished {
		t.Errorf("%d and %d rows, scope %q", len(old), len(moved), state.Source.Scope)
	}
	if err := s.TakeOver(into, []ledger.Share{all}); err != nil {
		t.Fatal(err)
	}
	moved, state = heldOf(t, s, "new")
	if len(moved) != len(objects) || state.Source.Scope != "a scope" {
		t.Errorf("%d rows, scope %q", len(moved), state.Source.Scope)
	}
}

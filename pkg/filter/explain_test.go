package filter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

func TestExplain(t *testing.T) {
	f := mustCompile(t, []Rule{
		{Resources: []string{"deployments.apps"}, Namespaces: []string{"nowhere"}},
		{
			Resources:  []string{"pods"},
			Namespaces: []string{"team-*", "!team-b"},
			When:       "object.status.phase == 'Running'",
			Operations: []string{"updated"},
		},
		{When: "old == null || object.status != old.status"},
		{When: "object.status.nodes > 3", Operations: []string{"deleted"}},
		{},
	}, Options{OnError: func(int, error) { t.Error("counted") }})
	state := func(namespace, phase string) *object.Object {
		o, err := object.New(
			[]byte(
				`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"` + namespace + `"},"status":{"phase":"` + phase + `"}}`,
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	pods := gvr(t, "/v1/pods")
	old, now := state("team-a", "Pending"), state("team-a", "Running")
	got := f.Explain(pods, event.Updated, old, now)
	want := []Verdict{
		{Rule: 0, Conditions: []Condition{{Field: "resources", Text: "deployments.apps", Found: "pods"}}},
		{Rule: 1, Belongs: true, Sends: true, Conditions: []Condition{
			{Field: "resources", Text: "pods", Found: "pods", Holds: true},
			{Field: "namespaces", Text: "team-*, !team-b", Found: "team-a", Holds: true},
			{Field: "when", Text: "object.status.phase == 'Running'", Holds: true},
			{Field: "operations", Text: "updated", Found: "updated", Holds: true},
		}},
		{Rule: 2, Belongs: true, Sends: true, Conditions: []Condition{
			{Field: "when", Text: "old == null || object.status != old.status", Holds: true},
		}},
		{Rule: 3, Belongs: true, Conditions: []Condition{
			{Field: "when", Text: "object.status.nodes > 3", Holds: true, Error: "no such key: nodes"},
			{Field: "operations", Text: "deleted", Found: "updated"},
		}},
		{Rule: 4, Belongs: true, Sends: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := f.Explain(pods, event.Updated, old, old)[2]; got.Sends || !got.Belongs {
		t.Errorf("nothing changed: %+v", got)
	}
	if (*Filter)(nil).Explain(pods, event.Added, nil, now) != nil {
		t.Error("a nil filter has rules")
	}
}

// What Explain says is what Belongs and Sends decide.
func TestExplainAgrees(t *testing.T) {
	rules := []Rule{
		{Namespaces: []string{"a"}, When: "object.x == 1"},
		{Namespaces: []string{"!b"}, When: "operation == 'added' && object.x == 2"},
		{Operations: []string{"deleted"}, Resources: []string{"pods", "nodes"}},
		{Resources: []string{"nodes"}},
	}
	for _, one := range [][]Rule{rules, rules[:1], rules[1:2], rules[2:3], rules[3:], nil} {
		f := mustCompile(t, one, Options{Slot: object.Slots})
		r := f.For(gvr(t, "/v1/pods"))
		for _, namespace := range []string{"a", "b", "c"} {
			for _, x := range []string{"1", "2", "3"} {
				o, err := object.New([]byte(`{"metadata":{"name":"n","namespace":"` + namespace + `"},"x":` + x + `}`))
				if err != nil {
					t.Fatal(err)
				}
				for _, op := range []event.Type{event.Added, event.Updated, event.Deleted} {
					belongs, sends := len(one) == 0, len(one) == 0
					for _, v := range f.Explain(gvr(t, "/v1/pods"), op, nil, o) {
						belongs, sends = belongs || v.Belongs, sends || v.Sends
					}
					if belongs != r.Belongs(o) || sends != (r.Belongs(o) && r.Sends(op, nil, o)) {
						t.Errorf("%v, %s, %s, %v: explained as %v, %v", one, namespace, x, op, belongs, sends)
					}
				}
			}
		}
	}
}

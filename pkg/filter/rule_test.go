package filter

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every mistake of every rule is reported in one go, each at its place.
func TestCompileReportsEveryMistake(t *testing.T) {
	f, errs := Compile([]Rule{
		{
			Resources:  []string{"pods", "Pods", "apps/v1"},
			Namespaces: []string{"[a", "fine", "NO"},
			Operations: []string{"added", "modified", ""},
			When:       "object.spec.replicas > 3 &&\n  objct.kind == 'Pod' &&\n    olt == null",
		},
		{When: "object.metadata.name == 'right'"},
		{When: "object.metadata.name"}, // dyn: decided on each object
		{When: "object.metadata.name + 'x' "},
		{When: "object.?spec"},
		{When: "object.a = 1"},
		{When: "object.metadata.name.matches('[a-z') || timestamp('tomorrow') > timestamp('2026-01-01T00:00:00Z')"},
		{When: "operation == 3"},
		{When: " "},
		{When: "'\u00e4' == object.kind && nope"},
	}, Options{})
	if f != nil {
		t.Error("a filter despite the mistakes")
	}
	type place struct {
		Rule         int
		Field        string
		Line, Column int
		Says         string
	}
	want := []place{
		{0, "resources[1]", 0, 0, "lower-case"},
		{0, "resources[2]", 0, 0, "subresources"},
		{0, "namespaces[0]", 0, 0, "glob"},
		{0, "namespaces[2]", 0, 0, "not a namespace"},
		{0, "operations[1]", 0, 0, "must be added, updated, deleted or restated"},
		{0, "operations[2]", 0, 0, "must be added, updated, deleted or restated"},
		{0, "when", 2, 3, "undeclared reference to 'objct'"},
		{0, "when", 3, 5, "undeclared reference to 'olt'"},
		{3, "when", 1, 1, "must be a boolean, not string"},
		{4, "when", 1, 1, "must be a boolean, not optional_type(dyn)"},
		{5, "when", 1, 10, "Syntax error"},
		{5, "when", 1, 12, "Syntax error"},
		{6, "when", 1, 30, "invalid matches argument"},
		{6, "when", 1, 51, "invalid timestamp argument"},
		{7, "when", 1, 11, "found no matching overload"},
		{8, "when", 1, 2, "Syntax error"},
		{9, "when", 1, 23, "undeclared reference to 'nope'"},
	}
	var got []place
	for i, err := range errs {
		says := err.Err.Error()
		if i < len(want) && strings.Contains(says, want[i].Says) {
			says = want[i].Says
		}
		got = append(got, place{err.Rule, err.Field, err.Line, err.Column, says})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

func TestRuleErrorText(t *testing.T) {
	_, errs := Compile([]Rule{{Resources: []string{"Pods"}, When: "true &&\n nope"}}, Options{})
	if len(errs) != 2 {
		t.Fatalf("errors: %v", errs)
	}
	want := []string{
		`filters[0].resources[0]: "Pods": write the resource as its lower-case plural, as in configmaps`,
		`filters[0].when: 2:2: undeclared reference to 'nope'`,
	}
	if diff := cmp.Diff(want, []string{errs[0].Error(), errs[1].Error()}); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

func TestSlots(t *testing.T) {
	f := mustCompile(t, []Rule{
		{When: "object.a == 1"},
		{Namespaces: []string{"x"}},
		{When: "object.a != old.a"},
		{When: "object.a == 2"},
	}, Options{Slot: 3})
	if got := f.Slots(); got != 2 {
		t.Errorf("Slots = %d, want one for each of the two expressions over the object alone", got)
	}
	if got := (*Filter)(nil).Slots(); got != 0 {
		t.Errorf("Slots of a nil Filter = %d", got)
	}
	if got := []int{f.rules[0].slot, f.rules[3].slot}; !cmp.Equal(got, []int{3, 4}) {
		t.Errorf("slots are %v", got)
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		"object.a == 1", "old == null", "object.?a.?b.orValue(1) > 2", "[1].all(old, .old == 1)", "cel.bind(x, old, x)",
		"object.a.map(k, v, k).exists(x, x == 1)", "'\xff'", "((((", "object.a.matches('(')", "\x00", "object.", "1",
		"cel.bind(.,A000,000", // has a mistake without a place
	} {
		f.Add("pods", "default", "added", seed)
	}
	o := newObject("default", "a", `{"a":{"b":3,"c":[1,"x",null,2.5]},"kind":"X"}`)
	f.Fuzz(func(t *testing.T, resource, namespace, operation, when string) {
		filter, errs := Compile([]Rule{{
			Resources: []string{resource}, Namespaces: []string{namespace}, Operations: []string{operation}, When: when,
		}}, Options{Logger: quiet()})
		if (filter == nil) != (len(errs) > 0) {
			t.Fatalf("filter %v with errors %v", filter, errs)
		}
		for _, err := range errs {
			if err.Field == "" || (err.Field == "when") != (err.Line > 0 && err.Column > 0) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("bad error %#v: %v", err, err)
			}
		}
		if r := filter.For(gvr(t, "/v1/pods")); r.Belongs(o) {
			r.Sends(1, nil, o)
		}
	})
}

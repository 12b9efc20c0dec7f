package filter

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/deltabridge/deltabridge/pkg/event"
)

func always(string) bool { return true }

func TestNamespaceSelector(t *testing.T) {
	f := mustCompile(t, []Rule{
		{NamespaceSelector: "team in (a, b), env!=test", When: "object.n == 1"},
		{Resources: []string{"nodes"}},
	}, Options{})
	passes := func(f *Filter, namespace string) bool {
		return f.For(gvr(t, "/v1/pods")).Belongs(newObject(namespace, "x", `{"n":1}`))
	}
	if passes(f, "one") || passes(f, "") {
		t.Error("something passes before the namespaces are known")
	}
	existing := Namespaces{"one": {"team": "a"}, "two": {"team": "b", "env": "test"}, "three": {"team": "c"}}
	f = f.WithNamespaces(existing, always)
	for namespace, want := range map[string]bool{"one": true, "two": false, "three": false, "": false, "other": false} {
		if got := passes(f, namespace); got != want {
			t.Errorf("%q passes: %t", namespace, got)
		}
	}
	if f.For(gvr(t, "/v1/pods")).Belongs(newObject("one", "x", `{"n":2}`)) {
		t.Error("the other condition counts no more")
	}
	if !f.SelectsNamespaces() || !f.For(gvr(t, "/v1/pods")).SelectsNamespaces() {
		t.Error("it selects no namespaces")
	}
	nodes := mustCompile(t, []Rule{{}}, Options{})
	if nodes.SelectsNamespaces() || nodes.WithNamespaces(existing, always) != nodes {
		t.Error("a filter without selectors changes")
	}
	if same := f.WithNamespaces(existing, always); same != f {
		t.Error("a filter changes although it selects the same namespaces")
	}
	delete(existing, "one")
	if kept := f.WithNamespaces(existing, always); kept != f {
		t.Error("a deleted namespace is not selected any more")
	}
	existing["two"]["env"] = "live"
	next := f.WithNamespaces(existing, func(string) bool { return false })
	if passes(next, "one") || !passes(next, "two") || !passes(f, "one") || passes(f, "two") {
		t.Error("the new selection is wrong, or it changes the filter before it")
	}
	if got := next.Rules()[0].Selected; !cmp.Equal(got, []string{"two"}) {
		t.Errorf("its rules select %v", got)
	}
}

// A filter that is compiled from its rules selects the same namespaces.
func TestSelectionIsPartOfTheRules(t *testing.T) {
	rules := []Rule{{NamespaceSelector: "a"}, {NamespaceSelector: "b"}}
	existing := Namespaces{"one": {"a": ""}, "two": {"a": "", "b": ""}}
	before := mustCompile(t, rules, Options{}).WithNamespaces(existing, always).Rules()
	again := mustCompile(t, before, Options{})
	if again.WithNamespaces(existing, always) != again {
		t.Errorf("%+v selects other namespaces", before)
	}
	got := Selection([]Rule{{NamespaceSelector: "b"}, {NamespaceSelector: "new"}, {}}, before)
	want := []Rule{{NamespaceSelector: "b", Selected: []string{"two"}}, {NamespaceSelector: "new"}, {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if selected := again.rules[0].selected; !selected.Equal(sets.New("one", "two")) {
		t.Errorf("selected: %v", selected)
	}
}

func TestNamespaceSelectorWithMistakes(t *testing.T) {
	_, mistakes := Compile([]Rule{{}, {NamespaceSelector: "a in"}}, Options{})
	if len(mistakes) != 1 || !strings.HasPrefix(mistakes[0].Error(), "filters[1].namespaceSelector: ") {
		t.Errorf("%v", mistakes)
	}
}

func TestExplainNamespaceSelector(t *testing.T) {
	f := mustCompile(t, []Rule{{NamespaceSelector: "team=a"}}, Options{}).
		WithNamespaces(Namespaces{"one": {"team": "a"}}, always)
	for namespace, want := range map[string]bool{"one": true, "two": false} {
		v := f.Explain(gvr(t, "/v1/pods"), event.Added, nil, newObject(namespace, "x", `{}`))
		condition := Condition{Field: "namespaceSelector", Text: "team=a", Found: namespace, Holds: want}
		if diff := cmp.Diff([]Verdict{{Belongs: want, Sends: want, Conditions: []Condition{condition}}}, v); diff != "" {
			t.Errorf("%s (-want +got):\n%s", namespace, diff)
		}
	}
}

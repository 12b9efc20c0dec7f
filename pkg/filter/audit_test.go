package filter

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAuditFilter(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	none := schema.GroupVersionResource{}
	const byAlice = `{"user":{"username":"alice"},"verb":"delete"}`
	for _, c := range []struct {
		rules     []Rule
		resource  schema.GroupVersionResource
		namespace string
		data      string
		want      bool
	}{
		{nil, none, "", byAlice, true},
		{[]Rule{{Resources: []string{"pods"}}}, pods, "a", byAlice, true},
		{[]Rule{{Resources: []string{"pods"}}}, deployments, "a", byAlice, false},
		{[]Rule{{Resources: []string{"*"}}}, none, "", byAlice, false},
		{[]Rule{{Resources: []string{"pods"}}, {Resources: []string{"*.apps"}}}, deployments, "a", byAlice, true},
		{[]Rule{{Namespaces: []string{"a"}}}, pods, "a", byAlice, true},
		{[]Rule{{Namespaces: []string{"a"}}}, pods, "b", byAlice, false},
		{[]Rule{{Namespaces: []string{"!kube-system"}}}, none, "", byAlice, true},
		{[]Rule{{When: "event.verb == 'delete' && event.user.username == 'alice'"}}, pods, "a", byAlice, true},
		{[]Rule{{When: "event.verb == 'create'"}}, pods, "a", byAlice, false},
		{[]Rule{{When: "event.verb == 'create'", Resources: []string{"pods"}}}, pods, "a", "", true}, // not decided yet
		{[]Rule{{When: "event.verb == 'create'", Resources: []string{"pods"}}}, deployments, "a", "", false},
		{[]Rule{{When: "event.impersonatedUser.username == 'x'"}}, pods, "a", byAlice, true}, // it fails, so the event passes
	} {
		f, mistakes := CompileAudit(c.rules, Options{})
		if len(mistakes) > 0 {
			t.Errorf("%+v: %v", c.rules, mistakes)
			continue
		}
		var data []byte
		if c.data != "" {
			data = []byte(c.data)
		}
		if got := f.Passes(c.resource, c.namespace, "n", data); got != c.want {
			t.Errorf("%+v for %v in %q, data %s: %t", c.rules, c.resource, c.namespace, data, got)
		}
	}
}

// Conditions on changes, and the variables of changes, are mistakes.
func TestAuditFilterMistakes(t *testing.T) {
	_, mistakes := CompileAudit([]Rule{
		{
			NamespaceSelector: "a=b",
			Operations:        []string{"added"},
			IgnoreChanges:     []string{"status"},
			OnlyChanges:       []string{"spec"},
			Debounce:          time.Second,
			Preset:            PresetQuiet,
			When:              "object.kind == 'Pod'",
			Resources:         []string{"a b"},
		},
	}, Options{})
	fields := map[string]bool{}
	for _, m := range mistakes {
		fields[m.Field] = true
	}
	want := []string{
		"debounce", "ignoreChanges", "namespaceSelector", "onlyChanges", "operations", "preset", "resources[0]", "when",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
	if _, mistakes := Compile([]Rule{{When: "event.verb == 'get'"}}, Options{}); len(mistakes) == 0 {
		t.Error("a filter of changes uses the variable event")
	}
}

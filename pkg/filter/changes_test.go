package filter

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

func mustState(t testing.TB, raw string) *object.Object {
	t.Helper()
	o, err := object.New([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// stateOf is an object of a kind with the given members, of which metadata gets the resourceVersion.
func stateOf(t testing.TB, kind, rv, members string) *object.Object {
	t.Helper()
	return mustState(
		t,
		`{"kind":"`+kind+`","apiVersion":"v1",`+strings.Replace(
			members,
			`"metadata":{`,
			`"metadata":{"resourceVersion":"`+rv+`",`,
			1,
		)+`}`,
	)
}

func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name          string
		ignore, only  []string
		preset, kind  string
		before, after string
		reason        string
	}{
		{"nothing but bookkeeping", []string{"status"}, nil, "", "Pod", `"metadata":{"name":"a","generation":1}`, `"metadata":{"name":"a","generation":2}`, "managedFields"},
		{"bookkeeping and onlyChanges", nil, []string{"metadata"}, "", "Pod", `"metadata":{"name":"a","generation":1}`, `"metadata":{"name":"a","generation":2}`, "onlyChanges"},
		{"status", []string{"status"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":{"a":1}`, `"metadata":{"name":"a"},"status":{"a":2}`, "status"},
		{"status appears", []string{"status"}, nil, "", "Pod", `"metadata":{"name":"a"}`, `"metadata":{"name":"a"},"status":{"a":2}`, "status"},
		{"status and spec", []string{"status"}, nil, "", "Pod", `"metadata":{"name":"a"},"spec":{"x":1},"status":{"a":1}`, `"metadata":{"name":"a"},"spec":{"x":2},"status":{"a":2}`, ""},
		{"a path of metadata", []string{"metadata.annotations"}, nil, "", "Pod", `"metadata":{"annotations":{"a":"1"}}`, `"metadata":{"annotations":{"a":"2","b":"3"}}`, "metadata.annotations"},
		{"a path that appears", []string{"metadata.annotations.a"}, nil, "", "Pod", `"metadata":{"name":"x"}`, `"metadata":{"name":"x","annotations":{"a":"2"}}`, "metadata.annotations.a"},
		{"more than a path appears", []string{"metadata.annotations.a"}, nil, "", "Pod", `"metadata":{"name":"x"}`, `"metadata":{"name":"x","annotations":{"a":"2","b":""}}`, ""},
		{"a key with dots", []string{`metadata.annotations["example.com/at"]`}, nil, "", "Pod", `"metadata":{"annotations":{"example.com/at":"1"}}`, `"metadata":{"annotations":{"example.com/at":"2"}}`, `metadata.annotations["example.com/at"]`},
		{"all members", []string{"status[*].at"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":{"a":{"at":1},"b":{"at":1}}`, `"metadata":{"name":"a"},"status":{"a":{"at":2},"b":{"at":3}}`, "status[*].at"},
		{"all members and one", []string{"status[*].at", "status.a.x"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":{"a":{"at":1,"x":1}}`, `"metadata":{"name":"a"},"status":{"a":{"at":2,"x":2}}`, "status[*].at"},
		{"elements", []string{"status.c[*].at"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":{"c":[{"at":1},{"at":1}]}`, `"metadata":{"name":"a"},"status":{"c":[{"at":2},{"at":3}]}`, "status.c[*].at"},
		{"elements without brackets", []string{"status.c.at"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":{"c":[{"at":1}]}`, `"metadata":{"name":"a"},"status":{"c":[{"at":2}]}`, "status.c.at"},
		{"one element more", []string{"status.c[*].at"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":{"c":[{"at":1}]}`, `"metadata":{"name":"a"},"status":{"c":[{"at":1},{"at":1}]}`, ""},
		{"another order of members", []string{"status"}, nil, "", "Pod", `"metadata":{"name":"a"},"spec":{"a":1,"b":2},"status":1`, `"spec":{"b":2,"a":1},"metadata":{"name":"a"},"status":2`, ""},
		{"members looked up", []string{"status"}, nil, "", "Pod", `"spec":{"a":1},"metadata":{"name":"a"},"status":1`, `"metadata":{"name":"a"},"spec":{"a":1},"status":2`, "status"},
		{"a member removed", []string{"status"}, nil, "", "Pod", `"spec":{"a":1},"metadata":{"name":"a"},"status":1`, `"metadata":{"name":"a"},"status":2`, ""},
		{"null and absent", []string{"status.x"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":null`, `"metadata":{"name":"a"},"status":{"x":1}`, "status.x"},
		{"another type", []string{"status.x"}, nil, "", "Pod", `"metadata":{"name":"a"},"status":[1]`, `"metadata":{"name":"a"},"status":{"x":1}`, ""},

		{"only: touched", nil, []string{"spec"}, "", "Pod", `"metadata":{"name":"a"},"spec":{"x":1}`, `"metadata":{"name":"a"},"spec":{"x":2}`, ""},
		{"only: appears", nil, []string{"metadata.labels.app"}, "", "Pod", `"metadata":{"name":"a"}`, `"metadata":{"name":"a","labels":{"app":"x"}}`, ""},
		{"only: goes", nil, []string{"metadata.labels.app"}, "", "Pod", `"metadata":{"name":"a","labels":{"app":"x"}}`, `"metadata":{"name":"a","labels":null}`, ""},
		{"only: beside it", nil, []string{"metadata.labels.app"}, "", "Pod", `"metadata":{"name":"a","labels":{"app":"x"}}`, `"metadata":{"name":"a","labels":{"app":"x","b":"y"}}`, "onlyChanges"},
		{"only: in elements", nil, []string{"spec.containers[*].image"}, "", "Pod", `"metadata":{"name":"a"},"spec":{"containers":[{"image":"1","x":1}]}`, `"metadata":{"name":"a"},"spec":{"containers":[{"image":"2","x":1}]}`, ""},
		{"only: beside them in elements", nil, []string{"spec.containers[*].image"}, "", "Pod", `"metadata":{"name":"a"},"spec":{"containers":[{"image":"1","x":1}]}`, `"metadata":{"name":"a"},"spec":{"containers":[{"image":"1","x":2}]}`, "onlyChanges"},
		{"only, ignored inside", []string{"spec.replicas"}, []string{"spec"}, "", "Pod", `"metadata":{"name":"a"},"spec":{"replicas":1}`, `"metadata":{"name":"a"},"spec":{"replicas":2}`, "spec.replicas"},

		{"a lease is renewed", []string{"leases"}, nil, "", "Lease", `"metadata":{"name":"a"},"spec":{"holderIdentity":"x","renewTime":"1"}`, `"metadata":{"name":"a"},"spec":{"holderIdentity":"x","renewTime":"2"}`, "leases"},
		{"a lease changes hands", []string{"leases"}, nil, "", "Lease", `"metadata":{"name":"a"},"spec":{"holderIdentity":"x","renewTime":"1"}`, `"metadata":{"name":"a"},"spec":{"holderIdentity":"y","renewTime":"2"}`, ""},
		{"renewTime of another kind", []string{"leases"}, nil, "", "Subscription", `"metadata":{"name":"a"},"spec":{"renewTime":"1"}`, `"metadata":{"name":"a"},"spec":{"renewTime":"2"}`, ""},
		{"a leader's annotation", []string{"leases"}, nil, "", "ConfigMap", `"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":"1"}}`, `"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":"2"}}`, "leases"},
		{"a node's heartbeat", nil, nil, "quiet", "Node", `"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"1"}]}`, `"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2"}]}`, "heartbeats"},
		{"a node is not ready", nil, nil, "quiet", "Node", `"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"1"}]}`, `"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"False","lastHeartbeatTime":"2"}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustCompile(
				t,
				[]Rule{{IgnoreChanges: c.ignore, OnlyChanges: c.only, Preset: c.preset}},
				Options{},
			).For(gvr(t, "/v1/pods"))
			before, after := stateOf(t, c.kind, "1", c.before), stateOf(t, c.kind, "2", c.after)
			if got := r.Refusal(event.Updated, before, after); got != c.reason {
				t.Errorf("refused for %q, want %q", got, c.reason)
			}
			if !r.Sends(event.Added, nil, after) || !r.Sends(event.Deleted, nil, before) {
				t.Error("an addition or a deletion is refused")
			}
		})
	}
}

func TestRefusalsOfSeveralRules(t *testing.T) {
	r := mustCompile(t, []Rule{
		{Namespaces: []string{"other"}},
		{Operations: []string{"added"}},
		{IgnoreChanges: []string{"status"}},
		{OnlyChanges: []string{"spec.x"}, When: "operation != 'updated'"},
	}, Options{}).For(gvr(t, "/v1/pods"))
	before := stateOf(t, "Pod", "1", `"metadata":{"name":"a"},"spec":{"x":1},"status":1`)
	if got := r.Refusal(
		event.Updated,
		before,
		stateOf(t, "Pod", "2", `"metadata":{"name":"a"},"spec":{"x":1},"status":2`),
	); got != "status" {
		t.Errorf("refused for %q", got)
	}
	if got := r.Refusal(
		event.Updated,
		before,
		stateOf(t, "Pod", "2", `"metadata":{"name":"a"},"spec":{"x":2},"status":2`),
	); got != "" {
		t.Errorf("refused for %q", got)
	}
	only := mustCompile(
		t,
		[]Rule{{OnlyChanges: []string{"spec.x"}, When: "old == null || object.spec.x > 5"}},
		Options{},
	).For(gvr(t, "/v1/pods"))
	if got := only.Refusal(
		event.Updated,
		before,
		stateOf(t, "Pod", "2", `"metadata":{"name":"a"},"spec":{"x":2},"status":2`),
	); got != ReasonWhen {
		t.Errorf("refused for %q", got)
	}
}

type unreadable struct{}

func (unreadable) Fetch(*object.Object) ([]byte, error) { return nil, os.ErrNotExist }

func TestAStateThatCantBeReadCountsAsChanged(t *testing.T) {
	r := mustCompile(t, []Rule{{IgnoreChanges: []string{"status"}}}, Options{}).For(gvr(t, "/v1/pods"))
	o := stateOf(t, "Pod", "2", `"metadata":{"name":"a"}`)
	if !r.Sends(event.Updated, o.Released(unreadable{}), o) {
		t.Error("refused")
	}
}

func TestQuiet(t *testing.T) {
	f := mustCompile(t, []Rule{{Preset: "quiet"}}, Options{})
	for resource, never := range map[string]bool{
		"/v1/events": true, "events.k8s.io/v1/events": true, "/v1/endpoints": true, "discovery.k8s.io/v1/endpointslices": true,
		"/v1/pods": false, "coordination.k8s.io/v1/leases": false, "example.com/v1/events": false,
	} {
		if got := f.For(gvr(t, resource)).Never(); got != never {
			t.Errorf("%s: never %v", resource, got)
		}
	}
}

func TestMistakesInPaths(t *testing.T) {
	for _, text := range []string{"", ".", "a.", ".a", "a..b", "a[0]", `a["b`, `a[""]`, "a[*]b", "[*]", "*.a", "a b", "/a/b", "a[*"} {
		for _, rule := range []Rule{{IgnoreChanges: []string{"spec", text}}, {OnlyChanges: []string{"spec", text}}} {
			_, mistakes := Compile([]Rule{rule}, Options{})
			if len(mistakes) != 1 || !strings.HasSuffix(mistakes[0].Field, "Changes[1]") {
				t.Errorf("%q: %v", text, mistakes)
			}
		}
	}
	if _, mistakes := Compile([]Rule{{Preset: "loud"}}, Options{}); len(mistakes) != 1 {
		t.Errorf("%v", mistakes)
	}
}

func TestExplainChanges(t *testing.T) {
	f := mustCompile(
		t,
		[]Rule{{Preset: "quiet"}, {IgnoreChanges: []string{"status"}, OnlyChanges: []string{"spec"}}},
		Options{},
	)
	before, after := stateOf(
		t,
		"Pod",
		"1",
		`"metadata":{"name":"a"},"status":1`,
	), stateOf(
		t,
		"Pod",
		"2",
		`"metadata":{"name":"a"},"status":2`,
	)
	verdicts := f.Explain(gvr(t, "/v1/pods"), event.Updated, before, after)
	if v := verdicts[0]; !v.Sends || len(v.Conditions) != 1 || v.Conditions[0].Field != "preset" {
		t.Errorf("%+v", v)
	}
	if v := verdicts[1]; v.Sends || len(v.Conditions) != 2 || v.Conditions[0].Found != ReasonOnlyChanges ||
		!v.Conditions[1].Holds {
		t.Errorf("%+v", v)
	}
	if v := f.Explain(gvr(t, "/v1/events"), event.Added, nil, after)[0]; v.Belongs || v.Sends {
		t.Errorf("%+v", v)
	}
}

// prune removes what the paths name from a decoded value: the plain model of ignoreChanges.
func prune(v any, path []string) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if path[0] != "" && path[0] != name {
				continue
			}
			if len(path) == 1 {
				delete(v, name)
			} else {
				v[name] = prune(v[name], path[1:])
			}
		}
	case []any:
		for n := range v {
			if path[0] == "" && len(path) > 1 {
				v[n] = prune(v[n], path[1:])
			} else if path[0] != "" {
				v[n] = prune(v[n], path)
			}
		}
	}
	return v
}

// What is not refused for ignoreChanges differs, and what is refused differs nowhere but there: but for objects that
// are empty without the ignored parts, which count as absent.
func FuzzIgnoreChanges(f *testing.F) {
	f.Add(`{"a":1,"b":{"c":[{"x":1,"y":2}]}}`, `{"b":{"c":[{"x":2,"y":2}]},"a":1}`, "b.c[*].x")
	f.Add(`{"a":null}`, `{"a":{"b":1}}`, "a.b")
	f.Fuzz(func(t *testing.T, before, after, text string) {
		path, err := object.ParsePath(text)
		if err != nil {
			return
		}
		old, err1 := object.New([]byte(before))
		obj, err2 := object.New([]byte(after))
		if err1 != nil || err2 != nil {
			return
		}
		c := parseChanges([]string{text}, nil, func(_ string, _ int, err error) { t.Fatal(err) })
		reason, err := c.refusal(change{op: event.Updated, old: old, now: obj})
		var a, b map[string]any
		if err != nil || json.Unmarshal([]byte(before), &a) != nil || json.Unmarshal([]byte(after), &b) != nil ||
			reason == "" {
			return
		}
		for _, p := range append(bookkeeping(), namedPath{steps: path}) {
			prune(a, p.steps)
			prune(b, p.steps)
		}
		if x, y := withoutEmpty(a), withoutEmpty(b); fmt.Sprint(x) != fmt.Sprint(y) {
			t.Errorf("%s to %s is refused for %s with %s: %v, %v", before, after, reason, text, x, y)
		}
	})
}

// withoutEmpty is v without objects that hold nothing.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if v[name] = withoutEmpty(v[name]); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
		return v
	case []any:
		for n := range v {
			v[n] = withoutEmpty(v[n])
		}
	}
	return v
}

func BenchmarkChanges(b *testing.B) {
	before := mustState(b, string(benchPod(b, "Running")))
	after := mustState(b, string(benchPod(b, "Failed")))
	for _, entries := range [][]string{{"status"}, {"metadata.annotations"}, {"managedFields", "leases", "heartbeats"}} {
		r := mustCompile(b, []Rule{{IgnoreChanges: entries}}, Options{}).For(gvr(b, "/v1/pods"))
		b.Run(strings.Join(entries, " "), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r.Refusal(event.Updated, before, after) == "" != !slices.Contains(entries, "status") {
					b.Fatal("wrong")
				}
			}
		})
	}
}

// docs/events.md lists the names that ignoreChanges takes.
func TestPresetsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Less noise\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "| name | what it stands for |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var names []string
	for line := range strings.Lines(table) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(changePresets())); !slices.Equal(names, want) {
		t.Errorf("the page has %q, the code %q", names, want)
	}
	for _, path := range []string{"spec.renewTime", "lastHeartbeatTime", "lastProbeTime", "control-plane.alpha.kubernetes.io/leader", "endpoints.kubernetes.io/last-change-trigger-time"} {
		if !strings.Contains(table, path) {
			t.Errorf("the page does not name %s", path)
		}
	}
}

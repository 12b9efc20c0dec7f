package pattern

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gvr reads "group/version/resource", with an empty group for the core group.
func gvr(t testing.TB, text string) schema.GroupVersionResource {
	t.Helper()
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		t.Fatalf("%q is not group/version/resource", text)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

func TestResource(t *testing.T) {
	all := []string{
		"/v1/pods", "/v1/podtemplates", "/v1/events", "apps/v1/deployments", "apps/v1beta1/deployments",
		"extensions/v1/deployments", "events.k8s.io/v1/events", "example.com/v1alpha1/widgets",
		"example.com/v2/gadgets", "sub.example.com/v1/widgets",
	}
	tests := []struct {
		pattern string
		want    []string
	}{
		{pattern: "*", want: all},
		{pattern: "*.*", want: all},
		{pattern: "pods", want: []string{"/v1/pods"}},
		{pattern: "events", want: []string{"/v1/events"}},
		{pattern: "events.v1", want: []string{"/v1/events"}},
		{pattern: "deployments"},
		{pattern: "deployments.apps", want: []string{"apps/v1/deployments", "apps/v1beta1/deployments"}},
		{pattern: "deployments.v1.apps", want: []string{"apps/v1/deployments"}},
		{pattern: "deployments.v1beta1.apps", want: []string{"apps/v1beta1/deployments"}},
		{pattern: "deployments.v3.apps"},
		{
			pattern: "deployments.*",
			want:    []string{"apps/v1/deployments", "apps/v1beta1/deployments", "extensions/v1/deployments"},
		},
		{pattern: "events.events.k8s.io", want: []string{"events.k8s.io/v1/events"}},
		{pattern: "events.v1.events.k8s.io", want: []string{"events.k8s.io/v1/events"}},
		{pattern: "*.example.com", want: []string{"example.com/v1alpha1/widgets", "example.com/v2/gadgets"}},
		{pattern: "*.v2.example.com", want: []string{"example.com/v2/gadgets"}},
		{pattern: "widgets.*.example.com", want: []string{"sub.example.com/v1/widgets"}},
		{pattern: "widgets.*example.com", want: []string{"example.com/v1alpha1/widgets", "sub.example.com/v1/widgets"}},
		{pattern: "[vw]idgets.example.com", want: []string{"example.com/v1alpha1/widgets"}},
		{pattern: "pod*", want: []string{"/v1/pods", "/v1/podtemplates"}},
		{pattern: "*s.v1", want: []string{"/v1/pods", "/v1/podtemplates", "/v1/events"}},
		{pattern: "event?", want: []string{"/v1/events", "events.k8s.io/v1/events"}},
		// Not of the form of a version, so it is the group.
		{pattern: "widgets.v1x.example.com"},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			p, err := ParseResource(tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, text := range all {
				if p.Matches(gvr(t, text)) {
					got = append(got, text)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("matched resources (-want +got):\n%s", diff)
			}
			again, err := ParseResource(p.String())
			if err != nil || again != p {
				t.Errorf("String() = %q, which reads back as %+v, %v; want %+v", p.String(), again, err, p)
			}
		})
	}
}

func TestResourceMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":              "empty",
		"!pods":         "cannot be excluded",
		"pods/status":   "subresources",
		"apps/v1":       "subresources",
		"Pod":           "lower-case",
		"pods.":         "not a resource",
		".apps":         "not a resource",
		"pods,services": "not a resource",
		"po ds":         "not a resource",
		`pod\*`:         "not a resource",
		"pod[s":         "glob",
		"pods.[apps":    "glob",
	} {
		t.Run(text, func(t *testing.T) {
			p, err := ParseResource(text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("error %v does not speak of %q", err, want)
			}
			if p != (Resource{}) {
				t.Errorf("pattern %+v despite the error", p)
			}
		})
	}
}

func TestZeroResourceMatchesNothing(t *testing.T) {
	if (Resource{}).Matches(gvr(t, "/v1/pods")) {
		t.Error("matches pods")
	}
}

func FuzzParseResource(f *testing.F) {
	for _, seed := range []string{"*", "pods", "deployments.v1.apps", "*.example.com", "[", "a.v1.", "!x", "[a-"} {
		f.Add(seed, "apps", "v1", "deployments")
	}
	f.Fuzz(func(t *testing.T, text, group, version, resource string) {
		p, err := ParseResource(text)
		if err != nil {
			return
		}
		p.Matches(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
		if again, err := ParseResource(p.String()); err != nil || again != p {
			t.Errorf("%q: String() = %q, which reads back as %+v, %v; want %+v", text, p.String(), again, err, p)
		}
	})
}

// A list matches what one of its patterns matches, and has no invalid ones.
func TestResources(t *testing.T) {
	list := ParseResources([]string{"pods", "Nodes", "*.apps", "a/b"})
	for text, want := range map[string]bool{
		"/v1/pods": true, "apps/v1/deployments": true, "/v1/nodes": false, "batch/v1/jobs": false,
	} {
		if list.Match(gvr(t, text)) != want {
			t.Errorf("%s: %v, want %v", text, !want, want)
		}
	}
	if len(list) != 2 || Resources(nil).Match(gvr(t, "/v1/pods")) {
		t.Errorf("%v", list)
	}
}

func TestMeet(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"pods", "pods", "pods"},
		{"pods", "nodes", ""},
		{"pods", "pods.metrics.k8s.io", ""},
		{"*.apps", "deployments.v1.apps", "deployments.v1.apps"},
		{"*.apps", "*.batch", ""},
		{"*.apps", "d*", "d*.apps"},
		{"*", "pods", "pods"},
		{"*.v1.example.com", "*.example.com", "*.v1.example.com"},
		{"*", "*.*.com", "*.*.com"},
		{"p*", "nodes", ""},
		{"jobs.v1.batch", "jobs.batch", "jobs.v1.batch"},
		{"jobs.v1.batch", "jobs.v2.batch", ""},
	} {
		patterns := ParseResources([]string{tt.a, tt.b})
		for n, p := range patterns {
			both, ok := p.Meet(patterns[1-n])
			if got := both.String(); ok != (tt.want != "") || ok && (got != tt.want || !p.Covers(both)) {
				t.Errorf("%s and %s meet in %s, %t", tt.a, tt.b, got, ok)
			}
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		p, q string
		want bool
	}{
		{"pods", "pods", true},
		{"*", "pods", true},
		{"*", "*.example.com", true},
		{"*.apps", "deployments.v1.apps", true},
		{"*.v1.apps", "deployments.apps", false},
		{"*.v1.apps", "deployments.v1.apps", true},
		{"pods", "p*", false},
		{"p*", "po*", false}, // not certain enough
		{"*.apps", "*", false},
	} {
		patterns := ParseResources([]string{tt.p, tt.q})
		if patterns[0].Covers(patterns[1]) != tt.want {
			t.Errorf("%s covers %s: not %t", tt.p, tt.q, tt.want)
		}
	}
}

// Meet and Covers compared with the resources that patterns match.
func FuzzMeet(f *testing.F) {
	f.Add("*.apps", "d*", "deployments", "v1", "apps")
	f.Add("jobs.v1.batch", "*", "jobs", "v1", "batch")
	f.Fuzz(func(t *testing.T, a, b, resource, version, group string) {
		p, err := ParseResource(a)
		q, other := ParseResource(b)
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		if err != nil || other != nil || strings.Contains(resource+group, "/") {
			return
		}
		both, ok := p.Meet(q)
		if p.Matches(gvr) && q.Matches(gvr) && (!ok || !both.Matches(gvr)) {
			t.Errorf("%s and %s match %v, and meet in %s, %t", a, b, gvr, both, ok)
		}
		if p.Covers(q) && q.Matches(gvr) && !p.Matches(gvr) {
			t.Errorf("%s covers %s, and does not match %v", a, b, gvr)
		}
	})
}

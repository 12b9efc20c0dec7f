package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

func servedIn(resource, group, kind string, namespaced bool, versions ...string) discovery.Served {
	return discovery.Served{
		GroupResource: schema.GroupResource{Group: group, Resource: resource},
		Kind:          kind,
		Namespaced:    namespaced,
		Versions:      versions,
	}
}

var planCatalog = &discovery.Catalog{Served: []discovery.Served{
	servedIn("pods", "", "Pod", true, "v1"),
	servedIn("events", "", "Event", true, "v1"),
	servedIn("nodes", "", "Node", false, "v1"),
	servedIn("deployments", "apps", "Deployment", true, "v1", "v1beta2"),
	servedIn("events", "events.k8s.io", "Event", true, "v1"),
	servedIn("widgets", "example.com", "Widget", true, "v2", "v1"),
}}

// Patterns parses patterns as the configuration does.
func Patterns(t *testing.T, texts ...string) pattern.Resources {
	t.Helper()
	parsed := pattern.ParseResources(texts)
	if len(parsed) != len(texts) {
		t.Fatalf("%q: only %q are valid", texts, parsed)
	}
	return parsed
}

// In has a watch for each of the namespaces.
func In(namespaces ...string) pattern.Namespaces {
	parsed, err := pattern.ParseNamespaces(namespaces)
	if err != nil {
		panic(err)
	}
	return parsed
}

// only has one watch for the namespaces, because they are globs, each of which matches one of them.
func only(namespaces ...string) pattern.Namespaces {
	for n, namespace := range namespaces {
		if namespace != "" {
			namespaces[n] = "[" + namespace + "]"
		}
	}
	return In(namespaces...)
}

// describePlan gives a line for each informer: resource@version, its namespace, what it selects if not all, and
// whether it was named.
func describePlan(p *plan) []string {
	lines := []string{}
	for key, w := range maps.All(p.informers) {
		line := key.String() + "@" + w.version
		if key.GroupResource != w.served.GroupResource {
			line += " served as " + w.served.String()
		}
		if key.namespace != "" {
			line += " in " + key.namespace
		}
		if text := w.selection.String(); text != "" {
			line += " " + strings.NewReplacer("[", "", "]", "").Replace(text) // see only
		}
		if w.named {
			line += " (named)"
		}
		if key.auxiliary {
			line += " (auxiliary)"
		}
		if w.first {
			line += " (first)"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// different is the problem with two scopes that have different selectors.
func different(used, ignored int, resource string) string {
	const problem = "watch[%d] and watch[%d] select %s with different selectors, and only watch[%d] is used; " +
		"write one entry, and a filter for each sink"
	return fmt.Sprintf(problem, used, ignored, resource, used)
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		scopes   []Scope
		want     []string
		problems []string
		open     bool // look again soon
	}{
		{
			name: "nothing", want: []string{},
		}, {
			name:   "preferred version",
			scopes: []Scope{{Resources: Patterns(t, "deployments.apps", "widgets.example.com")}},
			want:   []string{"deployments.apps@v1 (named)", "widgets.example.com@v2 (named)"},
		}, {
			name:   "pinned version",
			scopes: []Scope{{Resources: Patterns(t, "deployments.v1beta2.apps", "*.v1.example.com")}},
			want:   []string{"deployments.apps@v1beta2 (named)", "widgets.example.com@v1"},
		}, {
			name:   "another scope follows the pinned version",
			scopes: []Scope{{Resources: Patterns(t, "deployments.v1beta2.apps"), Namespaces: In("a")}, {Resources: Patterns(t, "*.apps")}},
			want:   []string{"deployments.apps@v1beta2 (named)"},
		}, {
			name:     "two versions of one resource",
			scopes:   []Scope{{Resources: Patterns(t, "deployments.apps")}, {Resources: Patterns(t, "deployments.v1beta2.apps"), LabelSelector: "x=y"}},
			want:     []string{"deployments.apps@v1 (named)"},
			problems: []string{"deployments.apps is already watched in version v1; version v1beta2 is ignored"},
		}, {
			name:   "everything: one storage under two names once",
			scopes: []Scope{{Resources: Patterns(t, "*")}},
			want:   []string{"deployments.apps@v1", "events@v1", "nodes@v1", "pods@v1", "widgets.example.com@v2"},
		}, {
			name:   "the second name alone",
			scopes: []Scope{{Resources: Patterns(t, "events.events.k8s.io")}},
			want:   []string{"events.events.k8s.io@v1 (named)"},
		}, {
			name:   "no scope is lost with the second name",
			scopes: []Scope{{Resources: Patterns(t, "events"), Namespaces: In("a")}, {Resources: Patterns(t, "events.events.k8s.io"), Namespaces: In("a", "b")}},
			want:   []string{"events@v1 in a (named)", "events@v1 in b (named)"},
		}, {
			name:   "exclude",
			scopes: []Scope{{Resources: Patterns(t, "*"), Exclude: Patterns(t, "*s")}, {Resources: Patterns(t, "pods")}},
			want:   []string{"pods@v1 (named)"},
		}, {
			name:   "an excluded version leaves the others",
			scopes: []Scope{{Resources: Patterns(t, "*.apps"), Exclude: Patterns(t, "deployments.v1.apps")}},
			want:   []string{"deployments.apps@v1beta2"},
		}, {
			name:     "unserved",
			scopes:   []Scope{{Resources: Patterns(t, "deployments", "pod", "gadgets.example.com", "gadgets", "*.absent.org")}},
			want:     []string{},
			problems: []string{"the cluster does not serve deployments (did you mean deployments.apps?)", "the cluster does not serve gadgets", "the cluster does not serve gadgets.example.com", "the cluster does not serve pod (did you mean pods?)"},
			open:     true,
		}, {
			name:     "cluster-scoped resources lie in no namespace",
			scopes:   []Scope{{Resources: Patterns(t, "pods", "nodes"), Namespaces: In("a")}, {Resources: Patterns(t, "nodes"), Namespaces: only("b")}},
			want:     []string{"pods@v1 in a (named)"},
			problems: []string{"nodes is cluster-scoped, but `namespaces` does not contain \"\"; add \"\" to watch it"},
		}, {
			name:   "and only those that are named are missed",
			scopes: []Scope{{Resources: Patterns(t, "nodes")}, {Resources: Patterns(t, "*"), Namespaces: In("a"), Exclude: Patterns(t, "*.?*")}},
			want:   []string{"events@v1 in a", "nodes@v1 (named)", "pods@v1 in a"},
		}, {
			name:   "cluster-scoped resources where no namespace is one of them",
			scopes: []Scope{{Resources: Patterns(t, "nodes"), Namespaces: only("", "b")}},
			want:   []string{"nodes@v1 (named)"},
		}, {
			name:   "an informer for each namespace",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: In("a", "b")}, {Resources: Patterns(t, "p*"), Namespaces: In("b", "c")}},
			want:   []string{"pods@v1 in a (named)", "pods@v1 in b (named)", "pods@v1 in c"},
		}, {
			name:   "one for all of them covers it",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: In("a", "b")}, {Resources: Patterns(t, "*")}},
			want:   []string{"deployments.apps@v1", "events@v1", "nodes@v1", "pods@v1 (named)", "widgets.example.com@v2"},
		}, {
			name:   "one that accepts the namespace too, no other does",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: In("a", "b")}, {Resources: Patterns(t, "pods"), Namespaces: only("b", "c")}},
			want:   []string{`pods@v1 in a (named)`, `pods@v1 in b or in c (named)`},
		}, {
			name:   "the union of what is accepted",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: only("a")}, {Resources: Patterns(t, "pods"), Namespaces: only("c")}},
			want:   []string{`pods@v1 in a or in c (named)`},
		}, {
			name:   "all is the union with all",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: only("a")}, {Resources: Patterns(t, "pods")}, {Resources: Patterns(t, "pods"), Namespaces: only("c")}},
			want:   []string{"pods@v1 (named)"},
		}, {
			name: "the same selectors",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app in (y,x), b", FieldSelector: "spec.nodeName=n,a=b"},
				{Resources: Patterns(t, "pods"), LabelSelector: "b,app in (x,y)", FieldSelector: "a=b,spec.nodeName=n", Namespaces: only("a")},
			},
			want: []string{"pods@v1 with labels app in (x,y),b with fields a=b,spec.nodeName=n (named)"},
		}, {
			name: "the same selectors in some namespaces",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x", Namespaces: only("b", "a")},
				{Resources: Patterns(t, "p*"), LabelSelector: "app=x", Namespaces: In("b", "d")},
			},
			want: []string{"pods@v1 in a or in b with labels app=x (named)", "pods@v1 in d with labels app=x"},
		}, {
			name: "different selectors in different namespaces",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x", Namespaces: In("a", "b")},
				{Resources: Patterns(t, "pods"), FieldSelector: "a=b", Namespaces: In("c")},
				{Resources: Patterns(t, "pods"), Namespaces: only("d")},
			},
			want: []string{
				"pods@v1 in a with labels app=x (named)", "pods@v1 in b with labels app=x (named)",
				"pods@v1 in c with fields a=b (named)", "pods@v1 in d (named)",
			},
		}, {
			name: "different selectors in the same namespace: the first",
			scopes: []Scope{
				{Resources: Patterns(t, "p*"), LabelSelector: "app=x", Namespaces: In("a", "b")},
				{Resources: Patterns(t, "pods", "deployments.apps"), Namespaces: In("b", "c")},
				{Resources: Patterns(t, "pods"), FieldSelector: "a=b", Namespaces: In("c")},
			},
			want: []string{
				"deployments.apps@v1 in b (named)", "deployments.apps@v1 in c (named)", "pods@v1 in a with labels app=x",
				"pods@v1 in b with labels app=x", "pods@v1 in c with fields a=b (named)",
			},
			problems: []string{different(0, 1, "pods")},
		}, {
			name: "one storage under two names with different selectors",
			scopes: []Scope{
				{Resources: Patterns(t, "events.events.k8s.io"), LabelSelector: "app=x"},
				{Resources: Patterns(t, "events")},
			},
			want:     []string{"events@v1 (named)"},
			problems: []string{different(1, 0, "events")},
		}, {
			name: "different selectors of a cluster-scoped resource",
			scopes: []Scope{
				{Resources: Patterns(t, "nodes"), Namespaces: only("", "b"), LabelSelector: "app=x"},
				{Resources: Patterns(t, "*"), Exclude: Patterns(t, "*.?*"), Namespaces: In("b")},
				{Resources: Patterns(t, "node*")},
			},
			want: []string{"events@v1 in b", "nodes@v1 with labels app=x (named)", "pods@v1 in b"},

			problems: []string{different(0, 2, "nodes")},
		}, {
			name:   "globs are shared out among entries in any way",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: only("c", "a")}, {Resources: Patterns(t, "pods"), Namespaces: only("b", "c")}},
			want:   []string{"pods@v1 in a or in b or in c (named)"},
		}, {
			name: "auxiliary ones are not watched twice, nor missed",
			scopes: []Scope{
				{Resources: Patterns(t, "*"), Exclude: Patterns(t, "deployments.apps")},
				{Resources: Patterns(t, "pods", "deployments.apps", "absent.apps"), Auxiliary: true},
			},
			want: []string{"deployments.apps@v1 (auxiliary) (first)", "events@v1", "nodes@v1", "pods@v1 (first)", "widgets.example.com@v2"},
		}, {
			name: "auxiliary ones where others watch a part",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x"},
				{Resources: Patterns(t, "deployments.apps"), Namespaces: only("a")},
				{Resources: Patterns(t, "pods", "deployments.apps", "nodes"), Namespaces: only("a", "b"), Auxiliary: true},
				{Resources: Patterns(t, "deployments.apps"), Namespaces: In("a", "c"), Auxiliary: true},
			},
			want: []string{
				`deployments.apps@v1 in a (named)`, `deployments.apps@v1 in a or in b (auxiliary) (first)`,
				`deployments.apps@v1 in c (auxiliary) (first)`, `pods@v1 in a or in b (auxiliary) (first)`, `pods@v1 with labels app=x (named)`,
			},
		}, {
			name: "auxiliary ones of the same namespaces",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), Namespaces: only("a")},
				{Resources: Patterns(t, "pods"), Namespaces: In("b")},
				{Resources: Patterns(t, "pods"), Namespaces: only("a"), Auxiliary: true},
				{Resources: Patterns(t, "pods"), Namespaces: In("b"), Auxiliary: true},
			},
			want: []string{`pods@v1 in a (named) (first)`, `pods@v1 in b (named) (first)`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlan(tt.scopes, planCatalog)
			if diff := gocmp.Diff(tt.want, describePlan(p)); diff != "" {
				t.Errorf("informers (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tt.problems, p.problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if p.open != tt.open {
				t.Errorf("open: %t", p.open)
			}
		})
	}
}

// An auxiliary source and one of the same for sinks are two, also for what a checkpoint remembers.
func TestAuxiliarySources(t *testing.T) {
	s := New(Config{Scopes: []Scope{
		{Resources: Patterns(t, "pods")},
		{Resources: Patterns(t, "deployments.apps"), Auxiliary: true},
	}})
	p := newPlan(s.config.Scopes, planCatalog)
	names := map[string]bool{}
	for key, w := range p.informers {
		source := key.source(w)
		names[source.Name] = true
		if again := keyOfSource(source); again != key {
			t.Errorf("%q is remembered as %+v, not as %+v", source.Name, again, key)
		}
		if !s.asksFor(key, source.Resource) {
			t.Errorf("nothing asks for %s", source.Name)
		}
		key.auxiliary = !key.auxiliary
		if s.asksFor(key, source.Resource) {
			t.Errorf("%s is asked for in the place of its like", source.Name)
		}
	}
	if !names["pods"] || !names["auxiliary deployments.apps"] {
		t.Errorf("sources %v", names)
	}
}

// Scopes that do not conflict as far as their text shows do not conflict in any catalog without names that share a
// storage.
func TestConflictIsVisible(t *testing.T) {
	var scopes []Scope
	for _, resources := range []string{"pods", "p*", "*", "deployments.v1.apps", "deployments.v1beta2.apps", "*.apps", "nodes", "*.v1.example.com"} {
		for _, exclude := range []pattern.Resources{nil, Patterns(t, "pods"), Patterns(t, "*.apps"), Patterns(t, "p*", "deployments.v1.apps")} {
			for _, namespaces := range []pattern.Namespaces{{}, In("a"), In("b", "a"), only("a"), In("!a"), In("", "b*")} {
				for _, selector := range []string{"", "app=x"} {
					scopes = append(scopes, Scope{
						Resources: Patterns(t, resources), Exclude: exclude, Namespaces: namespaces, LabelSelector: selector,
					})
				}
			}
		}
	}
	catalog := &discovery.Catalog{
		Served: slices.DeleteFunc(slices.Clone(planCatalog.Served), func(s discovery.Served) bool {
			return s.Resource == "events"
		}),
	}
	visible := 0
	for i := range scopes {
		for j := range scopes[:i] {
			if Conflict(&scopes[j], &scopes[i]) {
				visible++
				continue
			}
			for _, problem := range newPlan([]Scope{scopes[j], scopes[i]}, catalog).problems {
				if strings.Contains(problem, "different selectors") {
					t.Errorf("%+v and %+v: %s", scopes[j], scopes[i], problem)
				}
			}
		}
	}
	if visible == 0 {
		t.Error("no scopes conflict")
	}
}

package fleet

import (
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

// describePlan gives a line for each informer: resource@version, its namespace, what it selects if not all, by what the
// API server selects, and whether it was named.
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
		if labels, fields := w.selection.server(); labels+fields != "" {
			line += " by " + labels + fields
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
			name: "of the same selectors the API server's",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app in (y,x), b", FieldSelector: "spec.nodeName=n,a=b"},
				{Resources: Patterns(t, "pods"), LabelSelector: "b,app in (x,y)", FieldSelector: "a=b,spec.nodeName=n", Namespaces: only("a")},
			},
			want: []string{"pods@v1 with labels app in (x,y),b with fields a=b,spec.nodeName=n by app in (x,y),ba=b,spec.nodeName=n (named)"},
		}, {
			name: "different labels are selected here",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app=y", FieldSelector: "a=b"},
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x", FieldSelector: "a=b", Namespaces: only("a")},
			},
			want: []string{"pods@v1 in a with labels app=x with fields a=b or with labels app=y with fields a=b by a=b (named)"},
		}, {
			name: "a part of what another scope selects",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x", FieldSelector: "a=b"},
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x"},
				{Resources: Patterns(t, "pods"), LabelSelector: "app=y", Namespaces: In("a")},
				{Resources: Patterns(t, "pods"), FieldSelector: "a=b", Namespaces: In("a")},
				{Resources: Patterns(t, "p*"), Namespaces: In("a")},
			},
			want: []string{"pods@v1 in a (named)", "pods@v1 with labels app=x except in a by app=x (named)"},
		}, {
			name: "a namespace is watched once",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x", Namespaces: only("a", "b")},
				{Resources: Patterns(t, "pods"), LabelSelector: "app=y", Namespaces: In("a", "c")},
			},
			want: []string{
				"pods@v1 in a with labels app=x or in b with labels app=x except in a by app=x (named)", "pods@v1 in a with labels app=x or with labels app=y (named)",
				"pods@v1 in c with labels app=y by app=y (named)",
			},
		}, {
			name:   "globs are shared out among entries in any way",
			scopes: []Scope{{Resources: Patterns(t, "pods"), Namespaces: only("c", "a")}, {Resources: Patterns(t, "pods"), Namespaces: only("b", "c")}},
			want:   []string{"pods@v1 in a or in b or in c (named)"},
		}, {
			name: "fields of the name and the namespace are selected here",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), FieldSelector: "metadata.namespace!=a"},
				{Resources: Patterns(t, "pods"), FieldSelector: "metadata.name=x"},
			},
			want: []string{"pods@v1 with fields metadata.name=x or with fields metadata.namespace!=a (named)"},
		}, {
			name: "other fields cannot be, so all is watched",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), FieldSelector: "spec.nodeName=m"},
				{Resources: Patterns(t, "pods"), FieldSelector: "spec.nodeName=n"},
			},
			want: []string{"pods@v1 with fields spec.nodeName=m or with fields spec.nodeName=n (named)"},
		}, {
			name: "fields and labels of different scopes neither",
			scopes: []Scope{
				{Resources: Patterns(t, "pods"), FieldSelector: "spec.nodeName=m", Namespaces: In("a", "b")},
				{Resources: Patterns(t, "pods"), LabelSelector: "app=x", Namespaces: In("b", "c")},
			},
			want: []string{
				"pods@v1 in a with fields spec.nodeName=m by spec.nodeName=m (named)",
				"pods@v1 in b with fields spec.nodeName=m or with labels app=x (named)", "pods@v1 in c with labels app=x by app=x (named)",
			},
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
				`deployments.apps@v1 in c (auxiliary) (first)`, `pods@v1 in a or in b (auxiliary) (first)`, `pods@v1 with labels app=x by app=x (named)`,
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

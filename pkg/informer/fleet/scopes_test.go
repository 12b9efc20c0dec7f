package fleet_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// This file tests what a Set makes of scopes that differ, and of scopes that are not what they were, against the real
// API server.

// label gives a ConfigMap the label team, or none, and a value that nothing selects by.
func (k *kube) label(namespace, name, team, value string) {
	k.t.Helper()
	api := k.CoreV1().ConfigMaps(namespace)
	o, err := api.Get(k.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		_, err = api.Create(
			k.t.Context(),
			configMap(name, map[string]string{"team": team, "value": value}),
			metav1.CreateOptions{},
		)
		observe.Must(k.t, err)
		return
	}
	o.Labels = map[string]string{"team": team, "value": value}
	_, err = api.Update(k.t.Context(), o, metav1.UpdateOptions{})
	observe.Must(k.t, err)
}

// Two scopes select objects of one resource by different labels, in different namespaces. An object that is no longer
// selected is deleted for the handlers. Scopes of the same namespace that differ are reported, and the first is used.
func TestSelectorsThatDiffer(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	a, b := k.namespace(), k.namespace()
	in := func(selector string, namespaces ...string) fleet.Scope {
		return fleet.Scope{
			Resources: fleet.Patterns(t, "configmaps"), Namespaces: fleet.In(namespaces...), LabelSelector: selector,
		}
	}
	w := watchScopes(t, c.RESTConfig(), nil, in("team=a", a), in("team=b", b), in("team=c", "!"+a, "!"+b))
	w.waitReady()
	for _, namespace := range []string{a, b} {
		for n, team := range []string{"a", "b", "b", "c"} {
			k.label(namespace, "moves-in-"+namespace, team, fmt.Sprint(n))
		}
	}
	k.label(a, "last", "a", "0")
	k.label(b, "last", "b", "0")
	seen := w.record("configmaps")
	observe.Eventually(t, func() error {
		if n := seen.Count("add last"); n != 2 {
			return fmt.Errorf("%d of 2 last objects", n)
		}
		return nil
	})
	inA, inB := "moves-in-"+a, "moves-in-"+b
	observe.CheckLog(t, "in the first namespace", []string{"add " + inA, "delete " + inA}, seen.Lines(inA))
	observe.CheckLog(t, "in the second one", []string{"add " + inB, "update " + inB, "delete " + inB}, seen.Lines(inB))

	w = watchScopes(t, c.RESTConfig(), nil, in("team=a", a), in("team=b", a))
	w.record("configmaps").WaitFor(t, "synced")
	k.label(a, "ignored", "b", "0")
	k.label(a, "used", "a", "0")
	w.record("configmaps").WaitFor(t, "add used")
	observe.CheckLog(t, "of the other selector", []string{}, w.record("configmaps").Lines("ignored"))
	reasons := strings.Join(w.NotReady(), "; ")
	if !strings.Contains(reasons, "watch[0] and watch[1] select configmaps with different selectors") {
		t.Errorf("not ready: %q", reasons)
	}
}

// memory is a State in memory, as it is when a process ended.
type memory struct {
	mu      sync.Mutex
	sources map[string]*remembered
	resumed map[string]bool
	removed func(source string)
}

type remembered struct {
	source informer.Source
	known  []*object.Object
	at     string
}

func newMemory() *memory {
	return &memory{sources: map[string]*remembered{}, resumed: map[string]bool{}}
}

// config makes a fleet go on from it.
func (m *memory) config(sc *setup) {
	m.removed = sc.State.(*memory).removed
	sc.State = m
}

func (m *memory) Remembered() (sources []informer.Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.sources {
		if !m.resumed[name] {
			sources = append(sources, s.source)
		}
	}
	return sources
}

func (m *memory) Resume(source informer.Source) informer.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.resumed[source.Name]
	m.resumed[source.Name] = true
	s := m.sources[source.Name]
	if s == nil || before {
		return informer.Memory{}
	}
	return informer.Memory{Known: s.known, At: s.at, Scope: s.source.Scope}
}

func (m *memory) Record(informer.Source) informer.Record { return nil }

func (m *memory) TakeOver(into informer.Source, shares []informer.Share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sources[into.Name] == nil {
		m.sources[into.Name] = &remembered{at: m.sources[shares[0].Source].at}
	}
	to := m.sources[into.Name]
	to.source = into
	for _, share := range shares {
		from := m.sources[share.Source]
		var rest []*object.Object
		for _, o := range from.known {
			if share.In(o.Namespace) {
				to.known = append(to.known, o)
			} else {
				rest = append(rest, o)
			}
		}
		from.known = rest
	}
}

func (m *memory) Forget(source string) {
	m.removed(source)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sources, source)
}

// remember is what a checkpoint holds of a fleet that ends now.
func remember(t *testing.T, w *watching) *memory {
	t.Helper()
	w.stop()
	m := newMemory()
	for _, i := range w.Informers() {
		m.sources[i.Source().Name] = &remembered{i.Source(), i.Objects(), i.Status().ResourceVersion}
	}
	return m
}

// The scopes change while no process watches, and the known objects are kept. Objects that stay are not delivered
// again, missing objects are deleted, objects that are no longer watched have left, and new objects are added.
func TestScopesChange(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	names := func(namespaces ...string) fleet.Scope { return fleet.Scope{Namespaces: fleet.In(namespaces...)} }
	globs := func(namespaces ...string) fleet.Scope { // one watch, because each name is written as a glob
		for n, name := range namespaces {
			namespaces[n] = "[" + name[:1] + "]" + name[1:]
		}
		return names(namespaces...)
	}
	with := func(scope fleet.Scope, selector string) fleet.Scope {
		scope.LabelSelector = selector
		return scope
	}
	type scopes = []fleet.Scope
	for _, tt := range []struct {
		name          string
		before, after func(a, b string) scopes
		a, b          string // what is told of "stays" and "goes" in the namespaces, in brief
		gaps          int
	}{
		{
			"the same in another order", func(a, b string) scopes { return scopes{globs(a), globs(b), globs(b)} },
			func(a, b string) scopes { return scopes{globs(b, a), globs(a)} }, "add new, delete goes", "add new, delete goes", 0,
		},
		{
			"nothing", func(a, b string) scopes {
				return scopes{with(globs(a), "team in (a,x)"), with(globs(b), "team in (x,a)")}
			},
			func(a, b string) scopes {
				return scopes{with(globs(b), "team in (a, x)"), with(globs(a), "team in (a,x)")}
			}, "add new, delete goes", "add new, delete goes", 0,
		},
		{
			"names to fewer", func(a, b string) scopes { return scopes{names(a, b)} },
			func(a, b string) scopes { return scopes{names(a)} }, "add new, delete goes", "leave goes, leave stays", 0,
		},
		{
			"names to globs", func(a, b string) scopes { return scopes{names(a, b)} },
			func(a, b string) scopes { return scopes{globs(a, b)} }, "add new, delete goes", "add new, delete goes", 1,
		},
		{
			"names to fewer globs", func(a, b string) scopes { return scopes{names(a, b)} },
			func(a, b string) scopes { return scopes{globs(b)} }, "delete goes, leave stays", "add new, delete goes", 1,
		},
		{
			"globs to names", func(a, b string) scopes { return scopes{globs(a, b)} },
			func(a, b string) scopes { return scopes{names(a, b)} }, "add new, delete goes", "add new, delete goes", 2,
		},
		{
			"globs to fewer names", func(a, b string) scopes { return scopes{globs(a, b)} },
			func(a, b string) scopes { return scopes{names(b)} }, "leave goes, leave stays", "add new, delete goes", 1,
		},
		{
			"more globs", func(a, b string) scopes { return scopes{globs(a)} },
			func(a, b string) scopes { return scopes{globs(a, b)} }, "add new, delete goes", "add new, add stays", 1,
		},
		{
			"split by labels", func(a, b string) scopes { return scopes{globs(a, b)} },
			func(a, b string) scopes { return scopes{with(names(a), "team=a"), with(globs(b), "team=x")} }, "add new, delete goes", "leave goes, leave stays", 2,
		},
		{
			"the resource altogether", func(a, b string) scopes { return scopes{names(a, b)} },
			func(a, b string) scopes { return nil }, "leave goes, leave stays", "leave goes, leave stays", 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := k.namespace(), k.namespace()
			of := func(list scopes) scopes {
				for n := range list {
					list[n].Resources = fleet.Patterns(t, "configmaps")
				}
				return append(list, fleet.Scope{Resources: fleet.Patterns(t, "namespaces")})
			}
			for _, namespace := range []string{a, b} {
				k.label(namespace, "stays", "a", "0")
				k.label(namespace, "goes", "a", "0")
			}
			w := watchScopes(t, c.RESTConfig(), nil, of(tt.before(a, b))...)
			w.waitReady()
			m := remember(t, w)
			for _, namespace := range []string{a, b} {
				k.delete(namespace, "goes")
				k.label(namespace, "new", "a", "0")
			}
			w = watchScopes(t, c.RESTConfig(), m.config, of(tt.after(a, b))...)
			w.waitReady()
			observe.Eventually(t, func() error {
				m.mu.Lock()
				defer m.mu.Unlock()
				for name := range m.sources {
					if !m.resumed[name] {
						return fmt.Errorf("%s is still remembered", name)
					}
				}
				return nil
			})
			told := func(namespace string) string {
				var lines []string
				for _, c := range w.record("configmaps").All() {
					if c.Namespace == namespace {
						lines = append(lines, c.Verb+" "+c.Name)
					}
				}
				slices.Sort(lines)
				return strings.Join(lines, ", ")
			}
			observe.Eventually(t, func() error {
				if gotA, gotB := told(a), told(b); gotA != tt.a || gotB != tt.b {
					return fmt.Errorf("told %q and %q, want %q and %q", gotA, gotB, tt.a, tt.b)
				}
				return nil
			})
			if gaps := w.record("configmaps").Count("gap"); gaps != tt.gaps {
				t.Errorf("%d gaps", gaps)
			}
			if n := w.record("configmaps").Count("synced"); n != 0 {
				t.Errorf("%d initial lists", n)
			}
		})
	}
}

// The API server does not serve a built-in resource when a process starts: its known objects stay known.
func TestBuiltInResourceIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	namespace := k.namespace()
	k.create(namespace, "stays")
	k.create(namespace, "goes")
	in := fleet.Scope{Resources: fleet.Patterns(t, "configmap*", "configmaps"), Namespaces: fleet.In(namespace)}
	w := watchScopes(t, cluster.Shared(t).RESTConfig(), nil, in)
	w.waitReady()
	m := remember(t, w)
	hiding, diverted := &censored{}, &elsewhere{}
	config := cluster.Shared(t).RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { diverted.RoundTripper = rt; return diverted })
	diverted.divert("configmaps")
	hiding.hide("configmaps")
	w = watchScopes(t, config, func(sc *setup) {
		hiding.DiscoveryInterfaceWithContext, sc.Discovery = sc.Discovery, hiding
		m.config(sc)
	}, in)
	hiding.waitLooks(t, 2)
	k.delete(namespace, "goes")
	if got := w.record("configmaps").Lines(); len(got) != 0 {
		t.Errorf("told %q", got)
	}
	diverted.divert("")
	hiding.hide()
	crd := kind{"starts", "start.example.com"}
	k.define(crd, nil, "v1") // so that the set looks
	defer k.undefine(crd)
	w.record("configmaps").WaitFor(t, "delete goes")
	k.create(namespace, "comes")
	w.record("configmaps").WaitFor(t, "add comes")
	observe.CheckLog(t, "changes", []string{"delete goes", "add comes"}, w.record("configmaps").Lines())
}

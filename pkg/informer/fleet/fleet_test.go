package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// This file tests fleets of informers against the real API server. Tests that wait for the API server to come to terms
// with definitions do so in parallel, after all others.

// censored is discovery without some resources.
type censored struct {
	discovery.DiscoveryInterfaceWithContext
	mu     sync.Mutex
	hidden []string
	looks  int
}

func (c *censored) hide(resources ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden, c.looks = resources, 0
}

func (c *censored) ServerGroupsAndResourcesWithContext(
	ctx context.Context,
) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := c.DiscoveryInterfaceWithContext.ServerGroupsAndResourcesWithContext(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range lists {
		list.APIResources = slices.DeleteFunc(
			list.APIResources,
			func(r metav1.APIResource) bool { return slices.Contains(c.hidden, r.Name) },
		)
	}
	c.looks++
	return groups, lists, err
}

func (c *censored) waitLooks(t *testing.T, n int) {
	t.Helper()
	observe.Eventually(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.looks < n {
			return fmt.Errorf("%d looks", c.looks)
		}
		return nil
	})
}

func TestDiscoveryThatLacksAResource(t *testing.T) {
	t.Parallel()
	c, k := cluster.Shared(t), newKube(t)
	crd := kind{"lacks", "lack.example.com"}
	k.define(crd, nil, "v1")
	defer k.undefine(crd)
	k.put(crd, "v1", "mine", "1")
	namespace := k.namespace()
	k.create(namespace, "one")
	hiding := &censored{}
	w := watchScopes(t, c.RESTConfig(), func(sc *setup) {
		hiding.DiscoveryInterfaceWithContext, sc.Discovery = sc.Discovery, hiding
	}, fleet.Scope{Resources: fleet.Patterns(t, "configmap*"), Namespaces: fleet.In(namespace)}, fleet.Scope{Resources: fleet.Patterns(t, "*.lack.example.com")})
	observe.Eventually(t, func() error {
		if len(w.Statuses()) < 2 {
			return errors.New("not all is watched")
		}
		return nil
	})
	w.waitReady()
	hiding.hide("configmaps", "lacks")
	k.redefine(crd, nil, "v1") // so that the set looks
	hiding.waitLooks(t, 3)
	k.create(namespace, "two")
	k.put(crd, "v1", "mine", "2")
	w.record("configmaps").WaitFor(t, "add two")
	w.record(crd.name()).WaitFor(t, "update mine")
	hiding.hide()
	k.redefine(crd, nil, "v1")
	hiding.waitLooks(t, 2)
	k.create(namespace, "three")
	w.record("configmaps").WaitFor(t, "add three")
	observe.CheckLog(
		t,
		"ConfigMaps",
		[]string{"add one initially", "synced", "add two", "add three"},
		w.record("configmaps").Lines(),
	)
	observe.CheckLog(
		t,
		"custom objects",
		[]string{"add mine initially", "update mine"},
		w.record(crd.name()).Lines("mine"),
	)
	n := len(w.started("configmaps")) + len(w.started(crd.name()))
	if n != 2 || w.isRemoved(crd.name()) || strings.Contains(w.log.String(), "resource is no longer served") {
		t.Errorf("%d informers were started", n)
	}
}

// The watched version is no longer served: another version is watched, no object is delivered again, and a gap is
// announced. An edited definition restarts no informer.
func TestVersionNoLongerServed(t *testing.T) {
	t.Parallel()
	c, k := cluster.Shared(t), newKube(t)
	crd := kind{"gauges", "versions.example.com"}
	k.define(crd, nil, "v1", "v2")
	defer k.undefine(crd)
	k.put(crd, "v1", "one", "1")
	k.put(crd, "v1", "two", "1")
	w := watchScopes(t, c.RESTConfig(), nil, fleet.Scope{Resources: fleet.Patterns(t, "gauges.versions.example.com")})
	w.waitReady()
	seen := w.record(crd.name())
	if v := w.started(crd.name())[0].Resource().Version; v != "v2" {
		t.Fatalf("version %s is watched", v)
	}
	k.redefine(crd, nil, "v1", "v2") // edited
	k.put(crd, "v1", "one", "2")
	seen.WaitFor(t, "update one")
	if n := len(w.started(crd.name())); n != 1 {
		t.Errorf("%d informers after an edit", n)
	}

	k.redefine(crd, map[string]bool{"v1": true}, "v1", "v2")
	k.put(crd, "v1", "one", "3") // seen by the one, or the other, or none
	k.put(crd, "v1", "one", "4")
	observe.Eventually(t, func() error {
		if n := len(w.started(crd.name())); n != 2 {
			return fmt.Errorf("%d informers", n)
		}
		return nil
	})
	w.waitReady()
	k.put(crd, "v1", "two", "2")
	seen.WaitFor(t, "update two")
	observe.Must(t, k.Resource(crd.in("v1")).Namespace("default").Delete(t.Context(), "two", metav1.DeleteOptions{}))
	seen.WaitFor(t, "delete two")
	if n, gaps := seen.Count("update one"), seen.Count("gap"); n < 2 || n > 3 || n == 2 && gaps == 0 || gaps > 1 {
		t.Errorf("%d of 3 states were handed on, with %d gaps: %q", n, gaps, seen.Lines())
	}
	observe.CheckLog(t, "two", []string{"add two initially", "update two", "delete two"}, seen.Lines("two"))
	if n := len(w.Statuses()); n != 1 {
		t.Errorf("%d informers run", n)
	}
}

func TestDefinitionComesAndGoes(t *testing.T) {
	t.Parallel()
	c, k := cluster.Shared(t), newKube(t)
	crd := kind{"guests", "guests.example.com"}
	w := watchScopes(t, c.RESTConfig(), nil, fleet.Scope{Resources: fleet.Patterns(t, "*.guests.example.com")})
	w.waitReady()
	k.define(crd, nil, "v1")
	k.put(crd, "v1", "one", "1")
	seen := w.record(crd.name())
	seen.WaitFor(t, "synced")
	// Deleted and at once created again.
	k.undefine(crd)
	k.define(crd, nil, "v1")
	k.put(crd, "v1", "one", "1")
	observe.Eventually(t, func() error {
		if lines := seen.Lines("one"); len(lines) < 3 {
			return fmt.Errorf("%q", lines)
		}
		return nil
	})
	k.put(crd, "v1", "one", "2")
	seen.WaitFor(t, "update one")
	changes := slices.DeleteFunc(seen.All(), func(c observe.Change) bool { return c.Name != "one" })
	var verbs []string
	for _, c := range changes {
		verbs = append(verbs, c.Verb)
	}
	if diff := cmp.Diff([]string{"add", "delete", "add", "update"}, verbs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	} else if changes[0].UID != changes[1].UID || changes[1].UID == changes[2].UID {
		t.Errorf("uids: %v", changes)
	}
	k.undefine(crd)
	w.waitRemoved(crd.name())
	if last := seen.Lines("one"); !strings.HasPrefix(last[len(last)-1], "delete") || len(last) != 5 {
		t.Errorf("%q", last)
	}
	observe.Eventually(t, func() error {
		if n := len(w.Statuses()); n != 0 {
			return fmt.Errorf("%d informers run", n)
		}
		return nil
	})
	w.waitReady()
}

// Deletions that the watch does not show come with the end of the resource.
func TestDefinitionGoesUnseen(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	p, config := proxied(t)
	crd := kind{"ghosts", "ghosts.example.com"}
	k.define(crd, nil, "v1")
	k.put(crd, "v1", "one", "1")
	k.put(crd, "v1", "two", "1")
	w := watchScopes(t, config, nil, fleet.Scope{Resources: fleet.Patterns(t, "*.ghosts.example.com")})
	seen := w.record(crd.name())
	seen.WaitFor(t, "synced")
	p.Freeze()
	k.undefine(crd)
	p.Cut() // with all that was on the way
	p.Thaw()
	w.waitRemoved(crd.name())
	observe.CheckLog(
		t,
		"changes",
		[]string{"add one initially", "add two initially", "synced", "delete one unseen", "delete two unseen"},
		seen.Lines(),
	)
	if status := w.started(crd.name())[0].Status(); status.Objects != 0 {
		t.Errorf("status %+v", status)
	}
}

// elsewhere sends requests for a resource to a path that the API server does not know, or holds them back.
type elsewhere struct {
	http.RoundTripper
	mu       sync.Mutex
	resource string
	held     chan struct{} // closed when they may go on; nil: at once
}

func (e *elsewhere) divert(resource string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resource = resource
}

func (e *elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	resource, held := e.resource, e.held
	e.mu.Unlock()
	if resource != "" && strings.HasSuffix(r.URL.Path, "/"+resource) {
		if held == nil {
			r = r.Clone(r.Context())
			r.URL.Path += "-of-another-release"
			return e.RoundTripper.RoundTrip(r)
		}
		select {
		case <-held:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return e.RoundTripper.RoundTrip(r)
}

// A resource of the API server itself is not served for a while, as by a server of another release behind the same
// address. Its objects live on: nothing says that they were deleted.
func TestBuiltInResourceGoesAndComesBack(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	namespace := k.namespace()
	k.create(namespace, "stays")
	k.create(namespace, "goes")
	hiding, diverted := &censored{}, &elsewhere{}
	config := cluster.Shared(t).RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { diverted.RoundTripper = rt; return diverted })
	w := watchScopes(t, config, func(sc *setup) {
		hiding.DiscoveryInterfaceWithContext, sc.Discovery = sc.Discovery, hiding
	}, fleet.Scope{Resources: fleet.Patterns(t, "configmap*", "configmaps"), Namespaces: fleet.In(namespace)})
	w.waitReady()
	diverted.divert("configmaps")
	hiding.hide("configmaps")
	crd := kind{"nudges", "nudge.example.com"}
	k.define(crd, nil, "v1")
	defer k.undefine(crd)
	for _, i := range w.Informers() {
		observe.Eventually(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := i.Turn(ctx, never{}, nil); !errors.Is(err, informer.ErrEnded) {
				return fmt.Errorf("what is not served can be restated: %w", err)
			}
			return nil
		})
	}
	if reasons := w.NotReady(); len(reasons) != 1 || reasons[0] != "the cluster does not serve configmaps" {
		t.Errorf("not ready: %q", reasons)
	}
	if statuses := w.Statuses(); len(statuses) != 0 {
		t.Errorf("statuses of what is not served: %+v", statuses)
	}
	if names, _ := w.Sources(); len(names) != 0 {
		t.Errorf("sources that are not served: %v", names)
	}
	k.delete(namespace, "goes")
	k.create(namespace, "comes")
	diverted.divert("")
	hiding.hide()
	seen := w.record("configmaps")
	seen.WaitFor(t, "add comes")
	w.waitReady()
	observe.CheckLog(
		t,
		"changes",
		[]string{"add stays initially", "add goes initially", "synced", "gap", "delete goes unseen", "add comes"},
		seen.Lines(),
	)
}

// never is a Restater that accepts nothing.
type never struct{ informer.Restater }

func (never) MayRestate() bool { return false }

// A definition that comes after the first look and before definitions are watched is not overlooked.
func TestDefinitionBetweenLookAndWatch(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	crd := kind{"betweens", "between.example.com"}
	config := cluster.Shared(t).RESTConfig()
	held := &elsewhere{resource: "customresourcedefinitions", held: make(chan struct{})}
	looking := &censored{}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { held.RoundTripper = rt; return held })
	w := watchScopes(t, config, func(sc *setup) {
		looking.DiscoveryInterfaceWithContext, sc.Discovery = sc.Discovery, looking
	}, fleet.Scope{Resources: fleet.Patterns(t, "*.between.example.com")})
	looking.waitLooks(t, 1)
	k.define(crd, nil, "v1")
	defer k.undefine(crd)
	k.put(crd, "v1", "one", "1")
	close(held.held)
	start := time.Now()
	w.record(crd.name()).WaitFor(t, "add one initially")
	if took := time.Since(start); took > time.Minute {
		t.Errorf("watched only after %s", took)
	}
}

func TestManyDefinitionsAtOnce(t *testing.T) {
	t.Parallel()
	c, k := cluster.Shared(t), newKube(t)
	const many = 20
	counting := &censored{}
	w := watchScopes(t, c.RESTConfig(), func(sc *setup) {
		counting.DiscoveryInterfaceWithContext, sc.Discovery = sc.Discovery, counting
	}, fleet.Scope{Resources: fleet.Patterns(t, "*.storm.example.com")})
	w.waitReady()
	crd := func(n int) kind { return kind{fmt.Sprintf("storm%02ds", n), "storm.example.com"} }
	start := time.Now()
	var group sync.WaitGroup
	for n := range many {
		group.Go(func() {
			if _, err := k.Resource(crds).Create(t.Context(), crd(n).definition(nil, "v1"), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	created := time.Now()
	observe.Eventually(t, func() error {
		statuses := w.Statuses()
		for _, s := range statuses {
			if !s.Synced {
				return fmt.Errorf("%s is not synced", s.Resource)
			}
		}
		if len(statuses) != many {
			return fmt.Errorf("%d of %d are watched", len(statuses), many)
		}
		return nil
	})
	counting.mu.Lock()
	looks := counting.looks
	counting.mu.Unlock()
	t.Logf(
		"created within %s, all watched %s later, after %d looks",
		created.Sub(start).Round(time.Millisecond),
		time.Since(created).Round(time.Millisecond),
		looks,
	)
	if took := time.Since(created); took > time.Minute {
		t.Errorf("all are watched only after %s", took)
	}
	for n := range many {
		group.Go(func() {
			if err := k.Resource(crds).Delete(t.Context(), crd(n).name(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	observe.Eventually(t, func() error {
		if n := len(w.Statuses()); n > 0 {
			return fmt.Errorf("%d are watched", n)
		}
		return nil
	})
}

func TestEventsAreWatchedOnce(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	namespace := k.namespace()
	both := watchScopes(
		t,
		c.RESTConfig(),
		nil,
		fleet.Scope{
			Resources:  fleet.Patterns(t, "event*.*", "events", "events.events.k8s.io"),
			Namespaces: fleet.In(namespace),
		},
	)
	alone := watchScopes(
		t,
		c.RESTConfig(),
		nil,
		fleet.Scope{Resources: fleet.Patterns(t, "events.events.k8s.io"), Namespaces: fleet.In(namespace)},
	)
	both.waitReady()
	alone.waitReady()
	_, err := k.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: "happened",
		},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: "Pod", Name: "p"},
	}, metav1.CreateOptions{})
	observe.Must(t, err)
	both.record("events").WaitFor(t, "add happened")
	alone.record("events.events.k8s.io").WaitFor(t, "add happened")
	if raw := alone.record("events.events.k8s.io").All()[1].Raw; !strings.Contains(
		raw,
		`"apiVersion":"events.k8s.io/v1"`,
	) {
		t.Errorf("the other API's object: %s", raw)
	}
	if len(both.started("events")) != 1 || len(both.started("events.events.k8s.io")) != 0 || len(alone.Statuses()) != 1 {
		t.Errorf("%v are watched, and alone %v", both.Statuses(), alone.Statuses())
	}
}

// Literal namespaces are watched one by one. Forbidden resources are reported, and do not affect other resources.
func TestNamespacesAndForbiddenResources(t *testing.T) {
	k := newKube(t)
	first, second, third := k.namespace(), k.namespace(), k.namespace()
	config := restricted(
		t,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}},
	)
	w := watchScopes(
		t,
		config,
		nil,
		fleet.Scope{Resources: fleet.Patterns(t, "configmaps", "secrets"), Namespaces: fleet.In(first, second)},
		fleet.Scope{
			Resources:  fleet.Patterns(t, "pod*"),
			Namespaces: fleet.In(first),
		}, // forbidden too, and only a wildcard's
	)
	seen := w.record("configmaps")
	observe.Eventually(t, func() error {
		if n := seen.Count("synced"); n != 2 {
			return fmt.Errorf("%d are synced", n)
		}
		return nil
	})
	for _, namespace := range []string{third, first, second} {
		k.create(namespace, "in-"+namespace)
	}
	seen.WaitFor(t, "add in-"+first)
	seen.WaitFor(t, "add in-"+second)
	if n := seen.Count("add in-" + third); n != 0 {
		t.Error("a namespace that nobody asked for is watched")
	}
	observe.Eventually(t, func() error {
		reasons := w.NotReady()
		want := []string{"secrets in " + first + " is forbidden: ", "secrets in " + second + " is forbidden: "}
		slices.Sort(want)
		if len(reasons) != 2 || !strings.HasPrefix(reasons[0], want[0]) || !strings.HasPrefix(reasons[1], want[1]) {
			return fmt.Errorf("not ready: %q", reasons)
		}
		return nil
	})
	var described []string
	for _, s := range w.Statuses() {
		if name := s.Resource.Resource; name == "pods" || !strings.HasPrefix(name, "pod") {
			described = append(described, fmt.Sprintf("%s %t %t %t", name, s.Synced, s.Forbidden, s.Excused))
		}
	}
	slices.Sort(described)
	observe.CheckLog(
		t,
		"statuses",
		[]string{
			"configmaps true false false",
			"configmaps true false false",
			"pods false true true", // only a wildcard matches them
			"secrets false true false",
			"secrets false true false",
		},
		described,
	)
	if n := strings.Count(w.log.String(), "resource=secrets"); n != 2 {
		t.Errorf("%d lines of log about what is forbidden, want one for each namespace", n)
	}
}

// A resource of two namespaces has two informers. Who asks for them while the second is being launched is given both:
// with one of them alone, a resync would say that it had sent all objects of the resource.
func TestInformersWhileTheyAreLaunched(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	launched, goOn := make(chan struct{}, 2), make(chan struct{})
	w := watchScopes(t, c.RESTConfig(), func(sc *setup) {
		sc.OnStart = func(*informer.Informer) {
			launched <- struct{}{}
			<-goOn
		}
	}, fleet.Scope{Resources: fleet.Patterns(t, "configmaps"), Namespaces: fleet.In(k.namespace(), k.namespace())})
	<-launched
	goOn <- struct{}{}
	<-launched // one is running, the other is not yet
	if names, ok := w.Sources(); ok {
		t.Errorf("the sources %v seem to be all", names)
	}
	given := make(chan int)
	go func() { given <- len(w.Informers()) }()
	select {
	case n := <-given:
		t.Errorf("%d informers while one is being launched", n)
	case <-time.After(200 * time.Millisecond):
		close(goOn)
		if n := <-given; n != 2 {
			t.Errorf("%d informers", n)
		}
		observe.Eventually(t, func() error {
			if names, ok := w.Sources(); !ok || len(names) != 2 {
				return fmt.Errorf("sources %v, all: %t", names, ok)
			}
			return nil
		})
		return
	}
	close(goOn)
}

// The handler of a resource that is gone, and of one whose version is, blocks: others come and go all the same.
func TestBlockedHandlerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	c, k := cluster.Shared(t), newKube(t)
	going, changing, coming := kind{
		"goings",
		"block.example.com",
	}, kind{
		"changings",
		"block.example.com",
	}, kind{
		"comings",
		"block.example.com",
	}
	k.define(going, nil, "v1")
	k.define(changing, nil, "v1", "v2")
	defer k.undefine(changing)
	k.put(going, "v1", "one", "1")
	k.put(changing, "v1", "one", "1")
	gates := map[string]*observe.Gate{going.name(): observe.NewGate(), changing.name(): observe.NewGate()}
	w := watchScopes(t, c.RESTConfig(), func(sc *setup) {
		start := sc.OnStart
		sc.OnStart = func(i *informer.Informer) {
			if g := gates[i.Resource().GroupResource().String()]; g != nil {
				i.AddEventHandler(g)
			}
			start(i)
		}
	}, fleet.Scope{Resources: fleet.Patterns(t, "*.block.example.com")})
	for _, g := range gates {
		g.WaitBlocked(t)
	}
	k.undefine(going)
	k.redefine(changing, map[string]bool{"v1": true}, "v1", "v2")
	k.define(coming, nil, "v1")
	defer k.undefine(coming)
	k.put(coming, "v1", "one", "1")
	w.record(coming.name()).WaitFor(t, "synced")
	observe.Eventually(t, func() error {
		if n := len(w.started(changing.name())); n != 2 {
			return fmt.Errorf("%d informers were started for the other version", n)
		}
		return nil
	})
	if w.isRemoved(going.name()) || len(w.started(going.name())) != 1 {
		t.Error("removed before its handler was told")
	}
	for _, g := range gates {
		close(g.Open)
	}
	w.waitRemoved(going.name())
	if lines := gates[going.name()].Lines("one"); len(lines) != 2 || !strings.HasPrefix(lines[1], "delete one") {
		t.Errorf("%q", lines)
	}
	k.put(changing, "v1", "one", "2")
	w.record(changing.name()).WaitFor(t, "update one")
	observe.CheckLog(
		t,
		"over the change of version",
		[]string{"add one initially", "update one"},
		gates[changing.name()].Lines("one"),
	)
	w.waitReady()
}

// This test stops the API server of all tests for a while, so it does not run in parallel with other tests.
func TestAPIServerIsAway(t *testing.T) {
	c, k := cluster.Shared(t), newKube(t)
	namespace := k.namespace()
	observe.Must(t, c.StopAPIServer(t.Context()))
	in := fleet.Scope{Resources: fleet.Patterns(t, "configmaps"), Namespaces: fleet.In(namespace)}
	w := watchScopes(t, c.RESTConfig(), nil, in)
	observe.Eventually(t, func() error {
		if reasons := w.NotReady(); len(reasons) != 1 || !strings.Contains(reasons[0], "connection refused") {
			return fmt.Errorf("not ready: %q", reasons)
		}
		return nil
	})
	observe.Must(t, c.StartAPIServer(t.Context()))
	w.waitReady()
	k.create(namespace, "one")
	w.record("configmaps").WaitFor(t, "add one")
	if n := strings.Count(w.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors are logged", n)
	}
}

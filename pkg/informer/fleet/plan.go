package fleet

import (
	"maps"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scope selects resources, namespaces and objects to watch.
type Scope struct {
	// Resources are the resources to watch. If a pattern has no wildcards and the cluster does not serve its resource, the
	// fleet reports a problem.
	Resources pattern.Resources
	Exclude   pattern.Resources
	// Namespaces are the namespaces to watch. If all entries are plain names, each namespace has its own watch. Otherwise
	// one watch covers all namespaces.
	Namespaces pattern.Namespaces

	// LabelSelector and FieldSelector are evaluated by the API server if all scopes of a resource and namespace have the
	// same selector. Otherwise, they are evaluated in this process. Fields other than name and namespace then count as
	// matching, so the scopes of a resource and namespace should not differ in such fields.
	LabelSelector, FieldSelector string

	// Auxiliary reports whether the objects are watched only to enrich events about other objects. Informers of auxiliary
	// scopes start first. Objects that another scope watches are not watched twice. It is not a problem if a resource of
	// an auxiliary scope is not served or is forbidden.
	Auxiliary bool
}

// watchKey identifies an informer. Two informers that are not auxiliary never watch the same object.
type watchKey struct {
	schema.GroupResource
	namespace string // empty for all namespaces except those that have their own informer
	auxiliary bool   // the informer serves only auxiliary scopes
}

// resource is a served resource together with the version to watch.
type resource struct {
	served  discovery.Served
	version string
}

// wanted describes an informer that should run.
type wanted struct {
	resource
	selection selection
	named     bool // a pattern without wildcards matches the resource
	first     bool // an auxiliary scope selects the resource, so its informers start first
}

// plan lists the informers that should run for a catalog.
type plan struct {
	informers map[watchKey]*wanted
	problems  []string // which selected resources cannot be watched, and why
	open      bool     // a later discovery may find more resources
}

// Events are served under two resource names that share one storage.
//
//nolint:gochecknoglobals // constants in all but name
var (
	coreEvents  = schema.GroupResource{Resource: "events"}
	groupEvents = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
)

// newPlan determines which served resources the scopes select, and which objects each informer should select.
func newPlan(scopes []Scope, found *discovery.Catalog) *plan {
	p := &plan{informers: map[watchKey]*wanted{}}
	used := map[pattern.Resource]bool{}
	var events resource
	for _, served := range found.Served {
		version := "" // version that the first matching scope selects
		for n := range scopes {
			scope := &scopes[n]
			asked, patterns := scope.version(served, version)
			if asked == "" {
				continue
			}
			named := false
			for _, p := range patterns {
				used[p] = true
				named = named || !p.Wildcard() && !scope.Auxiliary
			}
			if version != "" && version != asked {
				p.problems = append(p.problems,
					served.String()+" is already watched in version "+version+"; version "+asked+" is ignored")
				continue
			}
			version = asked
			target := resource{served, version}
			switch {
			case served.GroupResource == coreEvents:
				events = target
			case served.GroupResource == groupEvents && events.version != "": // the core group comes first in a catalog
				target = events
			}
			p.add(scope, target, named)
		}
	}
	for _, scope := range scopes {
		for _, r := range scope.Resources {
			if !r.Wildcard() && !scope.Auxiliary && !used[r] {
				p.open = true
				p.problems = append(p.problems, "the cluster does not serve "+r.String()+suggestion(r.String(), found))
			}
		}
	}
	p.share()
	p.dropAuxiliary()
	slices.Sort(p.problems)
	p.problems = slices.Compact(p.problems)
	return p
}

// matching returns the patterns of the scope that match a resource in a version.
func (scope *Scope) matching(gvr schema.GroupVersionResource) (patterns pattern.Resources) {
	if scope.Exclude.Match(gvr) {
		return nil
	}
	for _, p := range scope.Resources {
		if p.Matches(gvr) {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// version returns the version of a resource that the scope selects, and the patterns that match it. It prefers the
// given version. If that does not match, it returns the first matching one in the server's order of preference.
func (scope *Scope) version(served discovery.Served, given string) (string, pattern.Resources) {
	for _, version := range append([]string{given}, served.Versions...) {
		if version == "" {
			continue
		}
		if patterns := scope.matching(served.WithVersion(version)); len(patterns) > 0 {
			return version, patterns
		}
	}
	return "", nil
}

// Covers returns the version of the resource that the scope selects, or an empty string if it selects none, and whether
// the scope includes the namespace. namespace is empty for a cluster-scoped resource. It ignores label and field
// selectors.
func (scope *Scope) Covers(served discovery.Served, namespace string) (version string, within bool) {
	version, _ = scope.version(served, "")
	return version, scope.Namespaces.Matches(namespace)
}

// order returns the keys of the informers in the order in which the informers start. Informers of single namespaces
// come before those for all namespaces, because they may take over objects from these sources. Informers that auxiliary
// scopes select come before others.
func (p *plan) order() []watchKey {
	rank := func(key watchKey) (rank int) {
		if key.namespace == "" {
			rank = 2
		}
		if !p.informers[key].first {
			rank++
		}
		return rank
	}
	return slices.SortedFunc(maps.Keys(p.informers), func(a, b watchKey) int { return rank(a) - rank(b) })
}

// owner returns the key of the informer that watches a namespace, if there is one.
func (p *plan) owner(resource schema.GroupResource, auxiliary bool, namespace string) watchKey {
	key := watchKey{resource, namespace, auxiliary}
	if p.informers[key] == nil {
		key.namespace = ""
	}
	return key
}

// add adds the informers for one scope and resource to the plan.
func (p *plan) add(scope *Scope, r resource, named bool) {
	namespaces, single := scope.Namespaces.Literals()
	switch {
	case !r.served.Namespaced && !scope.Namespaces.Matches(""):
		if named {
			p.problems = append(p.problems,
				r.served.String()+" is cluster-scoped, but `namespaces` does not contain \"\"; add \"\" to watch it")
		}
		return
	case !r.served.Namespaced, !single:
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		key := watchKey{r.served.GroupResource, namespace, scope.Auxiliary}
		w := p.informers[key]
		if w == nil {
			w = &wanted{resource: r}
			p.informers[key] = w
		}
		w.selection = w.selection.with(clausesOf(scope, r.served.Namespaced)...)
		w.named = w.named || named
		w.first = w.first || scope.Auxiliary
	}
}

// share decides which informer watches a namespace that has its own informer and is also covered by the informer for
// all namespaces. If the informer for all namespaces selects all required objects in the namespace, it also watches the
// namespace. Otherwise, only the namespace's own informer does.
func (p *plan) share() {
	for key, one := range p.informers {
		all := p.informers[watchKey{key.GroupResource, "", key.auxiliary}]
		if key.namespace == "" || all == nil {
			continue
		}
		there := all.selection.in(key.namespace)
		if len(there.clauses) == 0 {
			continue
		}
		if there.covers(one.selection) {
			all.named, all.first = all.named || one.named, all.first || one.first
			delete(p.informers, key)
			continue
		}
		one.selection = one.selection.with(there.clauses...)
		one.named = one.named || all.named
		at, _ := slices.BinarySearch(all.selection.except, key.namespace)
		all.selection.except = slices.Insert(slices.Clone(all.selection.except), at, key.namespace)
	}
}

// dropAuxiliary removes auxiliary informers whose objects another informer watches.
func (p *plan) dropAuxiliary() {
	for key, auxiliary := range p.informers {
		other := p.owner(key.GroupResource, false, key.namespace)
		by := p.informers[other]
		if !key.auxiliary || by == nil {
			continue
		}
		watched := by.selection
		if key.namespace != other.namespace {
			watched = watched.in(key.namespace)
		}
		if watched.covers(auxiliary.selection) {
			by.named, by.first = by.named || auxiliary.named, true
			delete(p.informers, key)
		}
	}
}

// suggestion returns a hint for a common mistake: a resource name without its API group.
func suggestion(name string, found *discovery.Catalog) string {
	if strings.Contains(name, ".") {
		return ""
	}
	for _, served := range found.Served {
		if served.Resource == name || strings.EqualFold(served.Kind, name) {
			return " (did you mean " + served.String() + "?)"
		}
	}
	return ""
}

package fleet

import (
	"fmt"
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

	// LabelSelector and FieldSelector are evaluated by the API server. Scopes that select the same resource in the same
	// namespace must have the same selectors, unless they are auxiliary. Otherwise the fleet reports a problem, and uses
	// the first of these scopes.
	LabelSelector, FieldSelector string

	// Auxiliary reports whether the objects are watched only to enrich events about other objects. Auxiliary scopes have
	// no selectors. Their informers start first. Objects that another scope watches completely are not watched twice. It
	// is not a problem if a resource of an auxiliary scope is not served or is forbidden.
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
	scopes    []Scope
	informers map[watchKey]*wanted
	used      map[schema.GroupResource][]int // the scopes that select each resource and are not auxiliary
	problems  []string                       // which selected resources cannot be watched, and why
	open      bool                           // a later discovery may find more resources
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
	p := &plan{scopes: scopes, informers: map[watchKey]*wanted{}, used: map[schema.GroupResource][]int{}}
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
			p.add(n, target, named)
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
	p.dropCovered()
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

// Conflict reports whether two scopes may select the same resource in the same namespace with different selectors. Each
// object is watched only once, so both selectors cannot apply. Only [Fleet.Preview] knows for certain: a pattern may
// match no resource, or both may match the same one under another name.
func Conflict(a, b *Scope) bool {
	return !a.sameSelectors(b) && a.mayShareNamespace(b) && a.mayShareResource(b)
}

func (scope *Scope) sameSelectors(o *Scope) bool {
	s := o.selection(false)
	return scope.selection(false).hasSelectors(s.labels, s.fields)
}

// mayShareNamespace reports whether both scopes may include the same namespace. Lists of globs count as if they did,
// because each is evaluated on a watch of all namespaces.
func (scope *Scope) mayShareNamespace(o *Scope) bool {
	for _, s := range []*Scope{scope, o} {
		if names, ok := s.Namespaces.Literals(); ok {
			return slices.ContainsFunc(names, func(name string) bool {
				return scope.Namespaces.Matches(name) && o.Namespaces.Matches(name)
			})
		}
	}
	return true
}

// mayShareResource reports whether both scopes may include the same resource.
func (scope *Scope) mayShareResource(o *Scope) bool {
	excluded := slices.Concat(scope.Exclude, o.Exclude)
	return slices.ContainsFunc(scope.Resources, func(p pattern.Resource) bool {
		return slices.ContainsFunc(o.Resources, func(q pattern.Resource) bool {
			both, meet := p.Meet(q)
			return meet && !slices.ContainsFunc(excluded, func(e pattern.Resource) bool { return e.Covers(both) })
		})
	})
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
func (p *plan) add(n int, r resource, named bool) {
	scope := &p.scopes[n]
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
	if earlier := p.conflicting(n, r); earlier >= 0 {
		p.problems = append(p.problems, fmt.Sprintf("watch[%d] and watch[%d] select %s with different selectors, and only "+
			"watch[%d] is used; write one entry, and a filter for each sink", earlier, n, r.served, earlier))
		return
	}
	if !scope.Auxiliary {
		p.used[r.served.GroupResource] = append(p.used[r.served.GroupResource], n)
	}
	for _, namespace := range namespaces {
		key := watchKey{r.served.GroupResource, namespace, scope.Auxiliary}
		w := p.informers[key]
		if w == nil {
			w = &wanted{resource: r, selection: scope.selection(r.served.Namespaced)}
			p.informers[key] = w
		}
		w.selection = w.selection.with(scope.selection(r.served.Namespaced))
		w.named = w.named || named
		w.first = w.first || scope.Auxiliary
	}
}

// conflicting returns an earlier scope that selects the resource in the same namespace with other selectors, or -1.
func (p *plan) conflicting(n int, r resource) int {
	scope := &p.scopes[n]
	for _, earlier := range p.used[r.served.GroupResource] {
		o := &p.scopes[earlier]
		if !scope.Auxiliary && !o.sameSelectors(scope) && (!r.served.Namespaced || o.mayShareNamespace(scope)) {
			return earlier
		}
	}
	return -1
}

// dropCovered removes informers whose objects another informer watches.
func (p *plan) dropCovered() {
	for key, w := range p.informers {
		for _, other := range []watchKey{
			{key.GroupResource, "", key.auxiliary}, {key.GroupResource, key.namespace, false}, {key.GroupResource, "", false},
		} {
			if by := p.informers[other]; by != nil && other != key && by.covers(w, key.namespace, other.namespace) {
				by.named, by.first = by.named || w.named, by.first || w.first
				delete(p.informers, key)
				break
			}
		}
	}
}

// covers reports whether an informer for a namespace is certain to select all objects of another informer.
func (w *wanted) covers(o *wanted, of, own string) bool {
	if !w.selection.hasSelectors("", "") && !w.selection.hasSelectors(o.selection.labels, o.selection.fields) {
		return false
	}
	if own != of {
		return w.selection.includes(of)
	}
	return w.selection.includesAll(o.selection)
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

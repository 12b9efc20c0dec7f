package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pattern is one entry of a scope's resources.
type Pattern struct {
	// Text is the pattern as the user wrote it, for messages.
	Text string
	// Match reports whether the pattern names this resource in this version.
	Match func(schema.GroupVersionResource) bool
	// Wildcard: the pattern can match resources that do not exist yet. One without is reported while the cluster does
	// not serve what it names.
	Wildcard bool
}

// Scope is one thing to watch: resources, in namespaces, with what the API server selects.
type Scope struct {
	Patterns []Pattern
	// Exclude takes resources out again; nil excludes none.
	Exclude func(schema.GroupVersionResource) bool
	// Namespaces to watch one by one, none of them "". Empty: all of them, by one watch.
	Namespaces []string
	// Accept restricts a watch over all namespaces; nil accepts all. It is asked with "" for cluster-scoped objects.
	Accept func(namespace string) bool
	// AcceptText is Accept in words, globs with commas between them: the same for the same namespaces. It tells whether a checkpoint
	// is of the same scope.
	AcceptText string

	// LabelSelector and FieldSelector are evaluated by the API server where all scopes of a resource and namespace have the same,
	// else here. Fields other than the name and the namespace can't be evaluated here.
	LabelSelector, FieldSelector string

	// Auxiliary scopes are watched for what is to be known of their objects when others are handed on: their informers start
	// first. What another scope watches anyhow is not watched again; what is not served, or forbidden, is no problem.
	Auxiliary bool
}

// watchKey tells informers apart. Two that are not auxiliary never watch the same object.
type watchKey struct {
	schema.GroupResource
	namespace string // empty: all, without those that informers of their own watch
	auxiliary bool   // for auxiliary scopes alone
}

// wanted is an informer that should run.
type wanted struct {
	served    discovery.Served
	version   string
	selection selection
	named     bool // by a pattern without a wildcard
	first     bool // an auxiliary scope asks for it
}

// plan is what a catalog means for the scopes.
type plan struct {
	informers map[watchKey]*wanted
	problems  []string // what of the scopes can't be watched, in words
	open      bool     // a later look may find more
}

// match is a served resource in the version that the scopes ask for.
type match struct {
	served  discovery.Served
	version string
	asks    []ask
}

// ask is a scope that asks for a resource.
type ask struct {
	scope *Scope
	named bool // by a pattern without a wildcard
}

func (s *Fleet) plan(ctx context.Context, found *discovery.Catalog) *plan {
	p := &plan{informers: map[watchKey]*wanted{}}
	matches := s.match(found, p)
	candidates := make([]discovery.Served, len(matches))
	for n, m := range matches {
		candidates[n] = m.served
	}
	same, unknown := s.discovery.SameStorage(ctx, candidates)
	p.open = p.open || len(unknown) > 0
	for _, m := range matches {
		if slices.Contains(unknown, m.served.GroupResource) {
			continue
		}
		target := m
		if earlier, ok := same[m.served.GroupResource]; ok {
			target = matches[slices.IndexFunc(matches, func(m match) bool { return m.served.GroupResource == earlier })]
		}
		for _, a := range m.asks {
			p.add(a, target)
		}
	}
	p.share()
	p.dropAuxiliary()
	p.evaluate()
	slices.Sort(p.problems)
	p.problems = slices.Compact(p.problems)
	return p
}

// match finds the served resources that scopes ask for, and notes in the plan what they ask for in vain.
func (s *Fleet) match(found *discovery.Catalog, p *plan) []match {
	used := map[string]bool{}
	var matches []match
	for _, served := range found.Served {
		m := match{served: served}
		for n := range s.config.Scopes {
			scope := &s.config.Scopes[n]
			version, patterns := scope.version(served, m.version)
			if version == "" {
				continue
			}
			named := false
			for _, pattern := range patterns {
				used[pattern.Text] = true
				named = named || !pattern.Wildcard && !scope.Auxiliary
			}
			if m.version != "" && m.version != version {
				p.problems = append(p.problems, served.String()+" is watched in version "+m.version+" only, not in "+version+" too")
				continue
			}
			m.version = version
			m.asks = append(m.asks, ask{scope, named})
		}
		if len(m.asks) > 0 {
			matches = append(matches, m)
		}
	}
	for _, scope := range s.config.Scopes {
		for _, pattern := range scope.Patterns {
			if !pattern.Wildcard && !scope.Auxiliary && !used[pattern.Text] {
				p.open = true
				p.problems = append(p.problems, "the cluster does not serve "+pattern.Text+suggestion(pattern.Text, found))
			}
		}
	}
	return matches
}

// version of the resource that the scope asks for: the given one, or else the preferred one of those that match, and by
// which patterns.
func (scope *Scope) version(served discovery.Served, given string) (string, []Pattern) {
	for _, version := range append([]string{given}, served.Versions...) {
		gvr := served.WithVersion(version)
		if version == "" || (scope.Exclude != nil && scope.Exclude(gvr)) {
			continue
		}
		var patterns []Pattern
		for _, pattern := range scope.Patterns {
			if pattern.Match(gvr) {
				patterns = append(patterns, pattern)
			}
		}
		if len(patterns) > 0 {
			return version, patterns
		}
	}
	return "", nil
}

// outside reports that a scope of namespaces has none of the cluster-scoped objects.
func (scope *Scope) outside() bool {
	return len(scope.Namespaces) > 0 || (scope.Accept != nil && !scope.Accept(""))
}

// Covers reports whether the scope asks for a resource, and whether objects in a namespace are within it; namespace is empty
// for a cluster-scoped resource. version is the one that it asks for. Selectors are not looked at.
func (scope *Scope) Covers(served discovery.Served, namespace string) (version string, resource, within bool) {
	version, _ = scope.version(served, "")
	switch {
	case version == "":
		return "", false, false
	case !served.Namespaced:
		within = !scope.outside()
	case len(scope.Namespaces) > 0:
		within = slices.Contains(scope.Namespaces, namespace)
	default:
		within = scope.Accept == nil || scope.Accept(namespace)
	}
	return version, true, within
}

// order gives the keys of the informers: those of resources first that auxiliary scopes ask for, and of one resource those of
// single namespaces, which may take over what the one for all namespaces had.
func (p *plan) order() []watchKey {
	first := map[schema.GroupResource]bool{}
	for key, w := range p.informers {
		first[key.GroupResource] = first[key.GroupResource] || w.first
	}
	rank := func(key watchKey) (rank int) {
		if !first[key.GroupResource] {
			rank = 2
		}
		if key.namespace == "" {
			rank++
		}
		return rank
	}
	return slices.SortedFunc(maps.Keys(p.informers), func(a, b watchKey) int { return rank(a) - rank(b) })
}

// owner gives the key of the informer for a namespace; false if there is none.
func (p *plan) owner(resource schema.GroupResource, auxiliary bool, namespace string) (key watchKey, found bool) {
	for _, key = range []watchKey{{resource, namespace, auxiliary}, {resource, "", auxiliary}} {
		if p.informers[key] != nil {
			return key, true
		}
	}
	return key, false
}

// add puts the informers of one scope and resource into the plan.
func (p *plan) add(a ask, m match) {
	scope := a.scope
	key := watchKey{m.served.GroupResource, "", scope.Auxiliary}
	if !m.served.Namespaced {
		if scope.outside() {
			if a.named {
				p.problems = append(p.problems, m.served.String()+` is cluster-scoped, and `+"`namespaces`"+` does not include it; add "" to watch it`)
			}
			return
		}
		c := clauseOf(scope)
		c.accepts, c.texts = nil, nil
		p.want(key, m, a.named, c)
		return
	}
	if len(scope.Namespaces) == 0 {
		p.want(key, m, a.named, clauseOf(scope))
		return
	}
	for _, key.namespace = range scope.Namespaces {
		p.want(key, m, a.named, clauseOf(scope))
	}
}

// want puts one informer into the plan, or more into what it selects.
func (p *plan) want(key watchKey, m match, named bool, c clause) {
	w := p.informers[key]
	if w == nil {
		w = &wanted{served: m.served, version: m.version}
		p.informers[key] = w
	}
	w.selection = w.selection.with(c)
	w.named = w.named || named
	w.first = w.first || key.auxiliary
}

// share settles who watches a namespace for which there is an informer of its own beside the one for all: that one, if it selects
// there all that is wanted; otherwise the namespace's own alone.
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
		for _, c := range there.clauses {
			one.selection = one.selection.with(c)
		}
		one.named = one.named || all.named
		at, _ := slices.BinarySearch(all.selection.except, key.namespace)
		all.selection.except = slices.Insert(slices.Clone(all.selection.except), at, key.namespace)
	}
}

// dropAuxiliary removes auxiliary informers where another one watches the same.
func (p *plan) dropAuxiliary() {
	for key, auxiliary := range p.informers {
		other, found := p.owner(key.GroupResource, false, key.namespace)
		if !key.auxiliary || !found {
			continue
		}
		by := p.informers[other]
		watched := by.selection
		if key.namespace != "" && other.namespace == "" {
			watched = watched.in(key.namespace)
		} else {
			watched = p.together(other)
		}
		if watched.covers(auxiliary.selection) {
			by.named, by.first = by.named || auxiliary.named, true
			delete(p.informers, key)
		}
	}
}

// together is what an informer selects, with the namespaces that others watch in its place if those select no less there.
func (p *plan) together(key watchKey) selection {
	s := p.informers[key].selection
	whole := selection{clauses: s.clauses}
	if slices.ContainsFunc(s.except, func(namespace string) bool {
		one := p.informers[watchKey{key.GroupResource, namespace, key.auxiliary}]
		return one == nil || !one.selection.covers(whole.in(namespace))
	}) {
		return s
	}
	return whole
}

// evaluate takes out of the plan what nobody can evaluate, and notes that.
func (p *plan) evaluate() {
	for key, w := range p.informers {
		rest, dropped := w.selection.evaluable()
		w.selection = rest
		for _, by := range dropped {
			name := w.served.String()
			if key.namespace != "" {
				name += " in " + key.namespace
			}
			p.problems = append(p.problems, fmt.Sprintf("%s is not watched with fields %s: other scopes select it differently, and what the fields of an object are only the API server knows", name, by))
		}
	}
}

// suggestion helps with the usual mistake: a resource outside of the core group without its group.
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

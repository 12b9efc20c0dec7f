package informer

import (
	"context"
	"maps"
	"slices"
	"strings"

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
	// AcceptText is Accept in words. It is a part of the source's name: a checkpoint of other namespaces is of no use.
	AcceptText string

	LabelSelector, FieldSelector string // evaluated by the API server

	// Auxiliary scopes are watched for what is to be known of their objects when others are handed on: their informers start
	// first. What another scope watches anyhow is not watched again; what is not served, or forbidden, is no problem.
	Auxiliary bool
}

// watchKey tells informers apart.
type watchKey struct {
	schema.GroupResource
	namespace, labels, fields string
	auxiliary                 bool // for auxiliary scopes alone
}

// wanted is an informer that should run.
type wanted struct {
	served  Served
	version string
	accepts []func(string) bool // any of them; nil: all
	texts   []string            // of accepts
	named   bool                // by a pattern without a wildcard
	first   bool                // an auxiliary scope asks for it
}

// plan is what a catalog means for the scopes.
type plan struct {
	informers map[watchKey]*wanted
	problems  []string // what of the scopes can't be watched, in words
	open      bool     // a later look may find more
}

// match is a served resource in the version that the scopes ask for.
type match struct {
	served  Served
	version string
	asks    []ask
}

// ask is a scope that asks for a resource.
type ask struct {
	scope *Scope
	named bool // by a pattern without a wildcard
}

func (s *Set) plan(ctx context.Context, found *catalog) *plan {
	p := &plan{informers: map[watchKey]*wanted{}}
	matches := s.match(found, p)
	candidates := make([]Served, len(matches))
	for n, m := range matches {
		candidates[n] = m.served
	}
	same, unknown := s.discovery.sameStorage(ctx, candidates)
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
	p.dropCovered()
	slices.Sort(p.problems)
	p.problems = slices.Compact(p.problems)
	return p
}

// match finds the served resources that scopes ask for, and notes in the plan what they ask for in vain.
func (s *Set) match(found *catalog, p *plan) []match {
	used := map[string]bool{}
	var matches []match
	for _, served := range found.served {
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
func (scope *Scope) version(served Served, given string) (string, []Pattern) {
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
func (scope *Scope) Covers(served Served, namespace string) (version string, resource, within bool) {
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

// order gives the keys of the informers, those first that auxiliary scopes ask for.
func (p *plan) order() []watchKey {
	return slices.SortedFunc(maps.Keys(p.informers), func(a, b watchKey) int {
		first := func(key watchKey) int {
			if p.informers[key].first {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
}

// add puts the informers of one scope and resource into the plan.
func (p *plan) add(a ask, m match) {
	scope := a.scope
	key := watchKey{m.served.GroupResource, "", scope.LabelSelector, scope.FieldSelector, scope.Auxiliary}
	if !m.served.Namespaced {
		if scope.outside() {
			if a.named {
				p.problems = append(p.problems, m.served.String()+` is cluster-scoped and lies in none of the namespaces; add "" to them to watch it`)
			}
			return
		}
		p.want(key, m, a.named, nil)
		return
	}
	if len(scope.Namespaces) == 0 {
		p.want(key, m, a.named, scope)
		return
	}
	for _, namespace := range scope.Namespaces {
		key.namespace = namespace
		p.want(key, m, a.named, nil)
	}
}

// want puts one informer into the plan, for the namespaces that scope accepts; nil: for all.
func (p *plan) want(key watchKey, m match, named bool, scope *Scope) {
	w, exists := p.informers[key]
	all := scope == nil || scope.Accept == nil
	switch {
	case !exists:
		w = &wanted{served: m.served, version: m.version}
		p.informers[key] = w
		if !all {
			w.accepts, w.texts = []func(string) bool{scope.Accept}, []string{scope.AcceptText}
		}
	case all || w.accepts == nil:
		w.accepts, w.texts = nil, nil
	default:
		w.accepts, w.texts = append(w.accepts, scope.Accept), append(w.texts, scope.AcceptText)
	}
	w.named = w.named || named
	w.first = w.first || key.auxiliary
}

// dropCovered removes informers for one namespace where another one watches the same in all namespaces, and auxiliary ones
// where any other does.
func (p *plan) dropCovered() {
	for key, one := range p.informers {
		for _, other := range key.wider() {
			all := p.informers[other]
			if all == nil || !all.covers(key.namespace, one) {
				continue
			}
			all.named, all.first = all.named || one.named, all.first || one.first
			delete(p.informers, key)
			break
		}
	}
}

// wider gives the keys under which the same may be watched.
func (k watchKey) wider() (keys []watchKey) {
	everywhere := k
	everywhere.namespace = ""
	if k.auxiliary {
		here := k
		here.auxiliary = false
		keys = append(keys, here)
		if k.namespace != "" {
			here.namespace = ""
			keys = append(keys, here)
		}
	}
	if k.namespace != "" {
		keys = append(keys, everywhere)
	}
	return keys
}

// covers reports whether w watches all that another one does, which is for one namespace, or for all if that is empty.
func (w *wanted) covers(namespace string, other *wanted) bool {
	switch {
	case w.accepts == nil:
		return true
	case namespace != "":
		return w.accept()(namespace)
	}
	return other.accepts != nil && !slices.ContainsFunc(other.texts, func(text string) bool { return !slices.Contains(w.texts, text) })
}

func (w *wanted) accept() func(string) bool {
	if w.accepts == nil {
		return nil
	}
	return func(namespace string) bool {
		return slices.ContainsFunc(w.accepts, func(accept func(string) bool) bool { return accept(namespace) })
	}
}

// suggestion helps with the usual mistake: a resource outside of the core group without its group.
func suggestion(name string, found *catalog) string {
	if strings.Contains(name, ".") {
		return ""
	}
	for _, served := range found.served {
		if served.Resource == name || strings.EqualFold(served.Kind, name) {
			return " (did you mean " + served.String() + "?)"
		}
	}
	return ""
}

package informer

import (
	"context"
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
	// Namespaces to watch one by one. Empty: all of them, by one watch.
	Namespaces []string
	// Accept restricts a watch over all namespaces; nil accepts all. It is asked with "" for cluster-scoped objects.
	Accept func(namespace string) bool

	LabelSelector, FieldSelector string // evaluated by the API server
}

// watchKey tells informers apart.
type watchKey struct {
	schema.GroupResource
	namespace, labels, fields string
}

// wanted is an informer that should run.
type wanted struct {
	served  Served
	version string
	accepts []func(string) bool // any of them; nil: all
	named   bool                // by a pattern without a wildcard
}

// plan is what a catalog means for the scopes.
type plan struct {
	informers map[watchKey]*wanted
	unserved  []string // patterns without a wildcard that name nothing served, with a hint
	unusable  []string // resources that are named, but lie in no namespace of their scope
}

// match is a served resource in the version that the scopes ask for.
type match struct {
	served  Served
	version string
	scopes  []*Scope
	named   bool
}

func (s *Set) plan(ctx context.Context, found *catalog) *plan {
	matches, used := s.match(found)
	candidates := make([]Served, len(matches))
	for n, m := range matches {
		candidates[n] = m.served
	}
	same := s.discovery.sameStorage(ctx, candidates)

	p := &plan{informers: map[watchKey]*wanted{}}
	for _, m := range matches {
		if _, ok := same[m.served.GroupResource]; ok {
			continue
		}
		for _, scope := range m.scopes {
			p.add(scope, m)
		}
	}
	p.dropCovered()
	for n := range s.config.Scopes {
		for _, pattern := range s.config.Scopes[n].Patterns {
			if !pattern.Wildcard && !used[pattern.Text] {
				p.unserved = append(p.unserved, pattern.Text+suggestion(pattern.Text, found))
			}
		}
	}
	return p
}

// match finds the served resources that scopes ask for. used holds the patterns that matched something.
func (s *Set) match(found *catalog) (matches []match, used map[string]bool) {
	used = map[string]bool{}
	for _, served := range found.served {
		m := match{served: served}
		for n := range s.config.Scopes {
			scope := &s.config.Scopes[n]
			version, patterns := scope.version(served)
			if version == "" || (m.version != "" && m.version != version) {
				continue // of two scopes that pin two versions of one resource the first one counts
			}
			m.version = version
			m.scopes = append(m.scopes, scope)
			for _, pattern := range patterns {
				used[pattern.Text] = true
				m.named = m.named || !pattern.Wildcard
			}
		}
		if len(m.scopes) > 0 {
			matches = append(matches, m)
		}
	}
	return matches, used
}

// version of the resource that the scope asks for, the preferred one of those that match, and by which patterns.
func (scope *Scope) version(served Served) (string, []Pattern) {
	for _, version := range served.Versions {
		gvr := served.WithVersion(version)
		if scope.Exclude != nil && scope.Exclude(gvr) {
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

// add puts the informers of one scope and resource into the plan.
func (p *plan) add(scope *Scope, m match) {
	key := watchKey{m.served.GroupResource, "", scope.LabelSelector, scope.FieldSelector}
	if !m.served.Namespaced {
		if len(scope.Namespaces) > 0 || (scope.Accept != nil && !scope.Accept("")) {
			if m.named {
				p.unusable = append(p.unusable, m.served.String())
			}
			return
		}
		p.want(key, m, nil)
		return
	}
	if len(scope.Namespaces) == 0 {
		p.want(key, m, scope.Accept)
		return
	}
	for _, namespace := range scope.Namespaces {
		key.namespace = namespace
		p.want(key, m, nil)
	}
}

func (p *plan) want(key watchKey, m match, accept func(string) bool) {
	w, exists := p.informers[key]
	switch {
	case !exists:
		w = &wanted{served: m.served, version: m.version}
		p.informers[key] = w
		if accept != nil {
			w.accepts = []func(string) bool{accept}
		}
	case accept == nil || w.accepts == nil:
		w.accepts = nil
	default:
		w.accepts = append(w.accepts, accept)
	}
	w.named = w.named || m.named
}

// dropCovered removes informers for one namespace where another one watches the same in all namespaces.
func (p *plan) dropCovered() {
	for key := range p.informers {
		all := key
		all.namespace = ""
		if w, ok := p.informers[all]; ok && key.namespace != "" && w.accepts == nil {
			delete(p.informers, key)
		}
	}
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

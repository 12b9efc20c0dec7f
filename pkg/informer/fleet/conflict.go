package fleet

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// Conflict reports whether two of the scopes may select the same object with different field selectors. Each object is
// watched only once, and for most fields only the API server can evaluate a selector, so both selectors cannot apply.
func Conflict(scopes []Scope, i, j int) bool {
	one, other := &scopes[i], &scopes[j]
	a, b := one.selectors(), other.selectors()
	if a.fields == b.fields || a.evaluable() && b.evaluable() || !one.meets(other) || one.covers(other) ||
		other.covers(one) || !one.sharesResource(other) {
		return false
	}
	return !slices.ContainsFunc(scopes, func(s Scope) bool { // another scope selects the objects of both
		c := s.selectors()
		return c.labels == "" && c.fields == "" && s.Namespaces.All() && len(s.Exclude) == 0 && s.names(one)
	})
}

// meets reports whether the two scopes may have a namespace in common.
func (scope *Scope) meets(o *Scope) bool {
	for _, s := range []*Scope{scope, o} {
		if names, ok := s.Namespaces.Literals(); ok {
			return slices.ContainsFunc(names, func(name string) bool {
				return scope.Namespaces.Matches(name) && o.Namespaces.Matches(name)
			})
		}
	}
	return true
}

// covers reports whether the scope selects all objects that o selects in the namespaces that both scopes include.
func (scope *Scope) covers(o *Scope) bool {
	_, named := scope.Namespaces.Literals()
	_, alsoNamed := o.Namespaces.Literals()
	sameNamespaces := named || alsoNamed || // plain names are compared one by one
		scope.Namespaces.All() || scope.Namespaces.String() == o.Namespaces.String()
	return sameNamespaces && scope.selectors().covers(o.selectors())
}

// names reports whether the scope includes all resources that o includes.
func (scope *Scope) names(o *Scope) bool {
	return !slices.ContainsFunc(o.Resources, func(p pattern.Resource) bool {
		return !slices.ContainsFunc(scope.Resources, func(q pattern.Resource) bool {
			return q == p || q.Resource == "*" && q.Version == "" && (q.Group == "*" || q.Group == p.Group)
		})
	})
}

// sharesResource reports whether both scopes may include the same resource.
func (scope *Scope) sharesResource(o *Scope) bool {
	return slices.ContainsFunc(scope.Resources, func(p pattern.Resource) bool {
		return slices.ContainsFunc(o.Resources, func(q pattern.Resource) bool {
			if q.Wildcard() {
				p, q = q, p
			}
			if q.Wildcard() {
				return p.MayMeet(q)
			}
			named := schema.GroupVersionResource{Group: q.Group, Version: q.Version, Resource: q.Resource}
			excluded := func(by pattern.Resource) bool { return by.Version == "" && by.Matches(named) }
			if named.Version == "" {
				named.Version = p.Version
			}
			return p.Matches(named) && !slices.ContainsFunc(scope.Exclude, excluded) &&
				!slices.ContainsFunc(o.Exclude, excluded)
		})
	})
}

package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	gvr "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/filter"
)

// entry is an entry of watch, parsed.
type entry struct {
	resources, exclude []filter.ResourcePattern
	namespaces         filter.NamespaceMatcher
	named              []string // the namespaces, if they are all names; else nil
	all                bool     // namespaces
	text               string   // the namespaces in canonical form
	labels, fields     string   // in canonical form
	evaluable          bool     // fields asks for the name and the namespace alone
}

func entryOf(w *Watch) entry {
	e := entry{labels: w.LabelSelector, fields: w.FieldSelector}
	for _, text := range w.Resources {
		if p, err := filter.ParsePattern(text); err == nil {
			e.resources = append(e.resources, p)
		}
	}
	for _, text := range w.Exclude {
		if p, err := filter.ParsePattern(text); err == nil {
			e.exclude = append(e.exclude, p)
		}
	}
	if namespaces, err := filter.ParseNamespaces(w.Namespaces); err == nil {
		e.namespaces, e.all = namespaces, namespaces.All()
		e.named, _ = namespaces.Literals()
		e.text = strings.Join(slices.Compact(slices.Sorted(slices.Values(w.Namespaces))), ",")
	}
	if selector, err := labels.Parse(w.LabelSelector); err == nil {
		e.labels = selector.String()
	}
	if selector, err := fields.ParseSelector(w.FieldSelector); err == nil {
		requirements := selector.Requirements()
		e.evaluable = !slices.ContainsFunc(requirements, func(r fields.Requirement) bool {
			return r.Field != "metadata.name" && r.Field != "metadata.namespace"
		})
		slices.SortFunc(requirements, func(a, b fields.Requirement) int { return strings.Compare(a.Field+a.Value, b.Field+b.Value) })
		e.fields = fmt.Sprint(requirements)
		if len(requirements) == 0 {
			e.fields = ""
		}
	}
	return e
}

// validateOverlaps reports entries that may name the same object and select it by different fields. An object is watched once, by what all
// entries select of it; labels can be looked at here, most fields by the API server alone.
func validateOverlaps(at *strictyaml.Section, watch []Watch) {
	entries := make([]entry, len(watch))
	for i := range watch {
		entries[i] = entryOf(&watch[i])
	}
	for i := range entries {
		for j := range entries[:i] {
			one, other := &entries[j], &entries[i]
			if !at.Fine(fmt.Sprintf("watch[%d]", i)) || !at.Fine(fmt.Sprintf("watch[%d]", j)) || !one.conflicts(other) {
				continue
			}
			covered := slices.ContainsFunc(entries, func(e entry) bool {
				return e.fields == "" && e.labels == "" && e.all && len(e.exclude) == 0 && e.names(one)
			})
			if covered {
				continue
			}
			n, than := i, j
			if other.fields == "" {
				n, than = j, i
			}
			at.Report(fmt.Sprintf("watch[%d].fieldSelector", n),
				fmt.Sprintf("differs from that of watch[%d], and both may name the same objects: an object is watched once, and its fields are known to the API server alone", than),
				"write the same fieldSelector for both, or resources or namespaces that have nothing in common, or a filter of the sink in its place")
		}
	}
}

// conflicts reports whether no watch gives what both entries select.
func (e *entry) conflicts(o *entry) bool {
	return e.fields != o.fields && !(e.evaluable && o.evaluable) && e.meets(o) && !e.covers(o) && !o.covers(e) && e.sharesResource(o)
}

// meets reports whether there may be a namespace that both have.
func (e *entry) meets(o *entry) bool {
	if e.named == nil {
		e, o = o, e
	}
	return e.named == nil || slices.ContainsFunc(e.named, o.namespaces.Matches)
}

// covers reports whether e selects all that o does where both are.
func (e *entry) covers(o *entry) bool {
	return (e.labels == "" || e.labels == o.labels) && (e.fields == "" || e.fields == o.fields) &&
		(e.all || e.text == o.text || e.named != nil || o.named != nil) // single namespaces are looked at each by itself
}

// names reports whether e names all resources that o does.
func (e *entry) names(o *entry) bool {
	return !slices.ContainsFunc(o.resources, func(p filter.ResourcePattern) bool {
		return !slices.ContainsFunc(e.resources, func(q filter.ResourcePattern) bool {
			return q == p || q.Resource == "*" && q.Version == "" && (q.Group == "*" || q.Group == p.Group)
		})
	})
}

// sharesResource reports whether there may be a resource that both name.
func (e *entry) sharesResource(o *entry) bool {
	return slices.ContainsFunc(e.resources, func(p filter.ResourcePattern) bool {
		return slices.ContainsFunc(o.resources, func(q filter.ResourcePattern) bool {
			if wildcard(q.Resource) || wildcard(q.Group) {
				p, q = q, p
			}
			if wildcard(q.Resource) || wildcard(q.Group) {
				return mayMeet(p.Resource, q.Resource) && mayMeet(p.Group, q.Group)
			}
			named := gvr.GroupVersionResource{Group: q.Group, Version: q.Version, Resource: q.Resource}
			excluded := func(by filter.ResourcePattern) bool { return by.Version == "" && by.Matches(named) }
			if named.Version == "" {
				named.Version = p.Version
			}
			return p.Matches(named) && !slices.ContainsFunc(e.exclude, excluded) && !slices.ContainsFunc(o.exclude, excluded)
		})
	})
}

func wildcard(glob string) bool { return strings.ContainsAny(glob, "*?[") }

// mayMeet reports whether two globs may match the same; of two with wildcards that is taken for granted.
func mayMeet(a, b string) bool { return wildcard(a) || wildcard(b) || a == b }

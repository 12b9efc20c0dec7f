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

// Patterns is a list of parsed resource patterns.
type Patterns []filter.ResourcePattern

// ParsePatterns parses the patterns of a `watch` or `redact` entry. It omits invalid patterns, which [Parse] reports.
func ParsePatterns(texts []string) Patterns {
	var patterns Patterns
	for _, text := range texts {
		if p, err := filter.ParsePattern(text); err == nil {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// Match reports whether at least one pattern matches a resource.
func (p Patterns) Match(resource gvr.GroupVersionResource) bool {
	return slices.ContainsFunc(p, func(pattern filter.ResourcePattern) bool { return pattern.Matches(resource) })
}

// Entry is a parsed entry of `watch`.
type Entry struct {
	Resources, Exclude Patterns
	Namespaces         filter.NamespaceMatcher
	Named              []string // the namespaces if all entries are plain names, otherwise nil
	NamespaceText      string   // the namespaces in canonical form
	labels, fields     string   // the selectors in canonical form
	evaluable          bool     // reports whether the bridge can evaluate the field selector
}

// Parse parses an entry. It omits what is invalid, which [Parse] reports.
func (w *Watch) Parse() Entry {
	e := Entry{
		Resources: ParsePatterns(w.Resources), Exclude: ParsePatterns(w.Exclude),
		NamespaceText: strings.Join(slices.Compact(slices.Sorted(slices.Values(w.Namespaces))), ","),
		labels:        w.LabelSelector, fields: w.FieldSelector,
	}
	e.Namespaces, _ = filter.ParseNamespaces(w.Namespaces)
	e.Named, _ = e.Namespaces.Literals()
	if selector, err := labels.Parse(w.LabelSelector); err == nil {
		e.labels = selector.String()
	}
	if selector, err := fields.ParseSelector(w.FieldSelector); err == nil {
		requirements := selector.Requirements()
		e.evaluable = !slices.ContainsFunc(requirements, func(r fields.Requirement) bool {
			return r.Field != "metadata.name" && r.Field != "metadata.namespace"
		})
		terms := strings.Split(selector.String(), ",")
		slices.Sort(terms)
		e.fields = strings.Join(terms, ",")
	}
	return e
}

// validateOverlaps reports entries that may select the same object with different field selectors. The bridge watches
// each object only once, and for most fields only the API server can evaluate a selector, so the bridge cannot apply
// both selectors.
func validateOverlaps(at *strictyaml.Section, watch []Watch) {
	entries := make([]Entry, len(watch))
	for i := range watch {
		entries[i] = watch[i].Parse()
	}
	for i := range entries {
		for j := range entries[:i] {
			one, other := &entries[j], &entries[i]
			if !at.Fine(fmt.Sprintf("watch[%d]", i)) || !at.Fine(fmt.Sprintf("watch[%d]", j)) || !one.conflicts(other) {
				continue
			}
			covered := slices.ContainsFunc(entries, func(e Entry) bool {
				return e.fields == "" && e.labels == "" && e.Namespaces.All() && len(e.Exclude) == 0 && e.names(one)
			})
			if covered {
				continue
			}
			n, than := i, j
			if other.fields == "" {
				n, than = j, i
			}
			at.Report(
				fmt.Sprintf("watch[%d].fieldSelector", n),
				fmt.Sprintf(
					"differs from the fieldSelector of watch[%d]; both entries may select the same objects, "+
						"but each object is watched only once",
					than,
				),
				"use the same fieldSelector for both, or different resources or namespaces, or a filter of the sink instead",
			)
		}
	}
}

// conflicts reports whether a single watch cannot select the objects of both entries.
func (e *Entry) conflicts(o *Entry) bool {
	return e.fields != o.fields && !(e.evaluable && o.evaluable) && e.meets(o) && !e.covers(o) && !o.covers(e) &&
		e.sharesResource(o)
}

// meets reports whether the two entries may have a namespace in common.
func (e *Entry) meets(o *Entry) bool {
	if e.Named == nil {
		e, o = o, e
	}
	return e.Named == nil || slices.ContainsFunc(e.Named, o.Namespaces.Matches)
}

// covers reports whether e selects all objects that o selects in the namespaces that both entries include.
func (e *Entry) covers(o *Entry) bool {
	namesOnly := e.Named != nil || o.Named != nil // plain names are compared one by one
	return (e.labels == "" || e.labels == o.labels) && (e.fields == "" || e.fields == o.fields) &&
		(namesOnly || e.Namespaces.All() || e.NamespaceText == o.NamespaceText)
}

// names reports whether e includes all resources that o includes.
func (e *Entry) names(o *Entry) bool {
	return !slices.ContainsFunc(o.Resources, func(p filter.ResourcePattern) bool {
		return !slices.ContainsFunc(e.Resources, func(q filter.ResourcePattern) bool {
			return q == p || q.Resource == "*" && q.Version == "" && (q.Group == "*" || q.Group == p.Group)
		})
	})
}

// sharesResource reports whether both entries may include the same resource.
func (e *Entry) sharesResource(o *Entry) bool {
	return slices.ContainsFunc(e.Resources, func(p filter.ResourcePattern) bool {
		return slices.ContainsFunc(o.Resources, func(q filter.ResourcePattern) bool {
			if q.Wildcard() {
				p, q = q, p
			}
			if q.Wildcard() {
				return mayMeet(p.Resource, q.Resource) && mayMeet(p.Group, q.Group)
			}
			named := gvr.GroupVersionResource{Group: q.Group, Version: q.Version, Resource: q.Resource}
			excluded := func(by filter.ResourcePattern) bool { return by.Version == "" && by.Matches(named) }
			if named.Version == "" {
				named.Version = p.Version
			}
			return p.Matches(named) && !slices.ContainsFunc(e.Exclude, excluded) && !slices.ContainsFunc(o.Exclude, excluded)
		})
	})
}

func wildcard(glob string) bool { return strings.ContainsAny(glob, "*?[") }

// mayMeet reports whether two globs may match the same name. It assumes that a glob with wildcards may match any name.
func mayMeet(a, b string) bool { return wildcard(a) || wildcard(b) || a == b }

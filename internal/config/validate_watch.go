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

// entry is a parsed `watch` entry.
type entry struct {
	resources, exclude Patterns
	namespaces         filter.NamespaceMatcher
	named              []string // the namespaces if all entries are plain names, otherwise nil
	text               string   // the namespaces in canonical form
	labels, fields     string   // the selectors in canonical form
	evaluable          bool     // reports whether the bridge can evaluate the field selector
}

func parseEntry(w *Watch) entry {
	e := entry{
		resources: ParsePatterns(w.Resources), exclude: ParsePatterns(w.Exclude),
		text:   strings.Join(slices.Compact(slices.Sorted(slices.Values(w.Namespaces))), ","),
		labels: w.LabelSelector, fields: w.FieldSelector,
	}
	e.namespaces, _ = filter.ParseNamespaces(w.Namespaces) // Watch.validate reports the error.
	e.named, _ = e.namespaces.Literals()
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
	entries := make([]entry, len(watch))
	for i := range watch {
		entries[i] = parseEntry(&watch[i])
	}
	for i := range entries {
		for j := range entries[:i] {
			one, other := &entries[j], &entries[i]
			if !at.Fine(fmt.Sprintf("watch[%d]", i)) || !at.Fine(fmt.Sprintf("watch[%d]", j)) || !one.conflicts(other) {
				continue
			}
			covered := slices.ContainsFunc(entries, func(e entry) bool {
				return e.fields == "" && e.labels == "" && e.namespaces.All() && len(e.exclude) == 0 && e.names(one)
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
					"differs from the one of watch[%d], and both may select the same objects, which are watched only once",
					than,
				),
				"use the same fieldSelector for both, or different resources or namespaces, or a filter of the sink instead",
			)
		}
	}
}

// conflicts reports whether a single watch cannot select the objects of both entries.
func (e *entry) conflicts(o *entry) bool {
	return e.fields != o.fields && !(e.evaluable && o.evaluable) && e.meets(o) && !e.covers(o) && !o.covers(e) &&
		e.sharesResource(o)
}

// meets reports whether the two entries may have a namespace in common.
func (e *entry) meets(o *entry) bool {
	if e.named == nil {
		e, o = o, e
	}
	return e.named == nil || slices.ContainsFunc(e.named, o.namespaces.Matches)
}

// covers reports whether e selects all objects that o selects in the namespaces that both entries include.
func (e *entry) covers(o *entry) bool {
	return (e.labels == "" || e.labels == o.labels) && (e.fields == "" || e.fields == o.fields) &&
		(e.namespaces.All() || e.text == o.text || e.named != nil || o.named != nil) // plain names are compared one by one
}

// names reports whether e includes all resources that o includes.
func (e *entry) names(o *entry) bool {
	return !slices.ContainsFunc(o.resources, func(p filter.ResourcePattern) bool {
		return !slices.ContainsFunc(e.resources, func(q filter.ResourcePattern) bool {
			return q == p || q.Resource == "*" && q.Version == "" && (q.Group == "*" || q.Group == p.Group)
		})
	})
}

// sharesResource reports whether both entries may include the same resource.
func (e *entry) sharesResource(o *entry) bool {
	return slices.ContainsFunc(e.resources, func(p filter.ResourcePattern) bool {
		return slices.ContainsFunc(o.resources, func(q filter.ResourcePattern) bool {
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
			return p.Matches(named) && !slices.ContainsFunc(e.exclude, excluded) && !slices.ContainsFunc(o.exclude, excluded)
		})
	})
}

func wildcard(glob string) bool { return strings.ContainsAny(glob, "*?[") }

// mayMeet reports whether two globs may match the same name. It assumes that a glob with wildcards may match any name.
func mayMeet(a, b string) bool { return wildcard(a) || wildcard(b) || a == b }

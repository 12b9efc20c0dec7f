package config

import (
	"fmt"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// Scope returns the scope of an entry. It omits invalid patterns and namespaces, which [Parse] reports.
func (w *Watch) Scope() fleet.Scope {
	namespaces, _ := pattern.ParseNamespaces(w.Namespaces)
	return fleet.Scope{
		Resources: pattern.ParseResources(w.Resources), Exclude: pattern.ParseResources(w.Exclude),
		Namespaces: namespaces, LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector,
	}
}

// validateOverlaps reports entries that may select the same objects with different selectors. The bridge watches each
// object only once, so both selectors cannot apply.
func validateOverlaps(at *strictyaml.Section, watch []Watch) {
	key := func(entry int) string { return fmt.Sprintf("watch[%d]", entry) }
	scopes := make([]fleet.Scope, len(watch))
	for i := range watch {
		if at.Fine(key(i)) && at.Fine(key(i)+".labelSelector") && at.Fine(key(i)+".fieldSelector") {
			scopes[i] = watch[i].Scope() // otherwise the scope selects nothing
		}
	}
	for i := range scopes {
		for j := range scopes[:i] {
			if fleet.Conflict(&scopes[j], &scopes[i]) {
				other := at.Node(key(j))
				at.Report(key(i), fmt.Sprintf("may select the same objects as %s (line %d, column %d), but has other selectors",
					key(j), other.Line, other.Column),
					"write one entry, and a filter for each sink, or exclude the common resources from one of the entries")
			}
		}
	}
}

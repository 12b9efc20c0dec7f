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

// validateOverlaps reports entries that may select the same object with different field selectors. The bridge watches
// each object only once, and for most fields only the API server can evaluate a selector, so the bridge cannot apply
// both selectors.
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
			if !fleet.Conflict(scopes, j, i) {
				continue
			}
			n, than := i, j
			if watch[i].FieldSelector == "" {
				n, than = j, i
			}
			at.Report(
				key(n)+".fieldSelector",
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

package filter

import (
	"maps"
	"slices"
)

// PresetQuiet is the preset of a rule for watches of everything: it leaves out what only churns.
const PresetQuiet = "quiet"

// quietResources are left out by PresetQuiet: Events, which are a log of their own, and the two lists of endpoints, which
// repeat what the Pods behind a Service say.
func quietResources() []string {
	return []string{"events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io"}
}

// quietChanges are ignored by PresetQuiet.
func quietChanges() []string { return []string{"managedFields", "leases", "heartbeats"} }

// presetPath is a place that a name in ignoreChanges stands for, in objects of a kind, or of all.
type presetPath struct {
	kind string // empty: all
	path []string
}

// changePresets are the names that stand for paths. Status and metadata are paths themselves, and their names are here for
// the documentation's sake.
func changePresets() map[string][]presetPath {
	const leader, trigger = "control-plane.alpha.kubernetes.io/leader", "endpoints.kubernetes.io/last-change-trigger-time"
	annotation := func(name string) []string { return []string{"metadata", "annotations", name} }
	return map[string][]presetPath{
		"status":        {{path: []string{"status"}}},
		"metadata":      {{path: []string{"metadata"}}},
		"managedFields": {}, // is ignored always
		// A lock that is renewed by who holds it. Another holder is a change.
		"leases": {
			{"Lease", []string{"spec", "renewTime"}},
			{"ConfigMap", annotation(leader)},
			{"Endpoints", annotation(leader)},
		},
		// The time at which somebody looked, with nothing new to say.
		"heartbeats": {
			{"", []string{"status", "conditions", "", "lastHeartbeatTime"}},
			{"", []string{"status", "conditions", "", "lastProbeTime"}},
			{"Endpoints", annotation(trigger)},
			{"EndpointSlice", annotation(trigger)},
		},
	}
}

// ChangePresets are the names that Rule.IgnoreChanges takes besides paths, sorted.
func ChangePresets() []string { return slices.Sorted(maps.Keys(changePresets())) }

// reasonBookkeeping names what is never a change for a rule that looks at changes.
const reasonBookkeeping = "managedFields"

// bookkeeping is what the API server counts with each write: it says that something changed, and not what.
func bookkeeping() [][]string {
	return [][]string{{"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "managedFields"}}
}

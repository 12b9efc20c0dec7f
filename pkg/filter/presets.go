package filter

import (
	"maps"
	"slices"
)

// PresetQuiet is the preset of a rule for a watch of everything: it leaves out frequent changes that mean little.
const PresetQuiet = "quiet"

// quietResources returns the resources that PresetQuiet leaves out: Events, which are a log, and endpoints, which
// repeat what the Pods of a Service say.
func quietResources() []ResourcePattern {
	return []ResourcePattern{
		{Resource: "events"},
		{Resource: "events", Group: "events.k8s.io"},
		{Resource: "endpoints"},
		{Resource: "endpointslices", Group: "discovery.k8s.io"},
	}
}

// quietChanges returns the entries of ignoreChanges that PresetQuiet adds.
func quietChanges() []string { return []string{"managedFields", "leases", "heartbeats"} }

// changePresets returns the names that stand for paths. Status and metadata are paths themselves; they are listed only
// for the documentation.
func changePresets() map[string][]namedPath {
	const leader, trigger = "control-plane.alpha.kubernetes.io/leader", "endpoints.kubernetes.io/last-change-trigger-time"
	annotation := func(name string) []string { return []string{"metadata", "annotations", name} }
	return map[string][]namedPath{
		"status":        {{steps: []string{"status"}}},
		"metadata":      {{steps: []string{"metadata"}}},
		"managedFields": {}, // always ignored
		// Locks that are renewed by their holder. Another holder is a change.
		"leases": {
			{kind: "Lease", steps: []string{"spec", "renewTime"}},
			{kind: "ConfigMap", steps: annotation(leader)},
			{kind: "Endpoints", steps: annotation(leader)},
		},
		// Times of checks that found nothing new.
		"heartbeats": {
			{steps: []string{"status", "conditions", "", "lastHeartbeatTime"}},
			{steps: []string{"status", "conditions", "", "lastProbeTime"}},
			{kind: "Endpoints", steps: annotation(trigger)},
			{kind: "EndpointSlice", steps: annotation(trigger)},
		},
	}
}

// ChangePresets returns the names that Rule.IgnoreChanges accepts in addition to paths, sorted.
func ChangePresets() []string { return slices.Sorted(maps.Keys(changePresets())) }

// reasonBookkeeping is the entry of the paths that bookkeeping returns.
const reasonBookkeeping = "managedFields"

// bookkeeping returns the paths that the API server updates at each write. They are always ignored.
func bookkeeping() []namedPath {
	var paths []namedPath
	for _, name := range []string{"resourceVersion", "generation", "managedFields"} {
		paths = append(paths, namedPath{steps: []string{"metadata", name}, entry: reasonBookkeeping})
	}
	return paths
}

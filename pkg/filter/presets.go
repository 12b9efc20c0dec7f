package filter

import "github.com/deltabridge/deltabridge/pkg/pattern"

// PresetQuiet is a preset for sinks that receive all resources. It filters out frequent changes that carry little
// information.
const PresetQuiet = "quiet"

// quietResources returns the resources that PresetQuiet excludes: Events, which are log entries, and endpoints, which
// repeat data of the Pods behind a Service.
func quietResources() pattern.Resources {
	return pattern.Resources{
		{Resource: "events"},
		{Resource: "events", Group: "events.k8s.io"},
		{Resource: "endpoints"},
		{Resource: "endpointslices", Group: "discovery.k8s.io"},
	}
}

// quietChanges returns the entries that PresetQuiet adds to ignoreChanges.
func quietChanges() []string { return []string{"managedFields", "leases", "heartbeats"} }

// changePresets returns the presets of ignoreChanges and the paths that each preset stands for. "status" and "metadata"
// are ordinary paths; they are in the map only so that the documentation lists them.
func changePresets() map[string][]namedPath {
	const leader, trigger = "control-plane.alpha.kubernetes.io/leader", "endpoints.kubernetes.io/last-change-trigger-time"
	annotation := func(name string) []string { return []string{"metadata", "annotations", name} }
	return map[string][]namedPath{
		"status":        {{steps: []string{"status"}}},
		"metadata":      {{steps: []string{"metadata"}}},
		"managedFields": {}, // always ignored
		// Locks that their holder renews. A new holder of a Lease is still a change, because only renewTime is ignored.
		"leases": {
			{kind: "Lease", steps: []string{"spec", "renewTime"}},
			{kind: "ConfigMap", steps: annotation(leader)},
			{kind: "Endpoints", steps: annotation(leader)},
		},
		// Timestamps of checks that found no change.
		"heartbeats": {
			{steps: []string{"status", "conditions", "", "lastHeartbeatTime"}},
			{steps: []string{"status", "conditions", "", "lastProbeTime"}},
			{kind: "Endpoints", steps: annotation(trigger)},
			{kind: "EndpointSlice", steps: annotation(trigger)},
		},
	}
}

// reasonBookkeeping is the suppression reason for changes to the paths that bookkeeping returns.
const reasonBookkeeping = "managedFields"

// bookkeeping returns the paths that the API server updates on every write. Filters always ignore these paths.
func bookkeeping() []namedPath {
	var paths []namedPath
	for _, name := range []string{"resourceVersion", "generation", "managedFields"} {
		paths = append(paths, namedPath{steps: []string{"metadata", name}, entry: reasonBookkeeping})
	}
	return paths
}

package config

import (
	"slices"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/filter"
)

// Auxiliary returns the resources that must be watched for the sinks' `enrich` in addition to `watch`. The result may
// overlap with `watch`.
func (c *Config) Auxiliary() []Watch {
	var needs enrich.Needs
	for n := range c.Sinks {
		needs = needs.Or(c.Sinks[n].Enrich)
	}
	var watches []Watch
	if needs.Owner || needs.InvolvedObject {
		for n := range c.Watch {
			namespaces := c.Watch[n].Namespaces
			if slices.ContainsFunc(watches, func(w Watch) bool { return slices.Equal(w.Namespaces, namespaces) }) {
				continue
			}
			w := Watch{Resources: owners(), Namespaces: namespaces}
			if needs.InvolvedObject {
				w.Resources = append(w.Resources, "pods")
			}
			if needs.InvolvedObject && len(namespaces) == 0 {
				w.Resources = append(w.Resources, "nodes")
			}
			watches = append(watches, w)
		}
	}
	if needs.NamespaceLabels {
		watches = append(watches, Watch{Resources: []string{"namespaces"}})
	}
	return watches
}

// Reads returns everything that the bridge reads from the API server: `watch`, Auxiliary, and the namespaces whose labels
// filters require; or nothing, if nothing uses changes.
func (c *Config) Reads() []Watch {
	if !c.UsesChanges() {
		return nil
	}
	reads := slices.Concat(c.Watch, c.Auxiliary())
	if c.SelectsNamespaces() {
		reads = append(reads, Watch{Resources: []string{"namespaces"}})
	}
	return reads
}

// SelectsNamespaces reports whether a filter selects namespaces by their labels.
func (c *Config) SelectsNamespaces() bool {
	return slices.ContainsFunc(c.Sinks, func(s Sink) bool {
		return slices.ContainsFunc(s.Filters, func(r filter.Rule) bool { return r.NamespaceSelector != "" })
	})
}

// owners returns the built-in resources whose objects own other objects.
func owners() []string {
	return []string{
		"replicasets.apps", "statefulsets.apps", "daemonsets.apps", "deployments.apps", "jobs.batch", "cronjobs.batch",
	}
}

package config

import (
	"slices"

	"github.com/deltabridge/deltabridge/pkg/enrich"
)

// Auxiliary returns the resources that must be watched for the sinks' `enrich` in addition to `watch`. The result may
// overlap with `watch`.
func (c *Config) Auxiliary() []Watch {
	var needs enrich.Needs
	for n := range c.Sinks {
		needs = needs.Or(c.Sinks[n].Enrich.Needs)
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

// owners returns the built-in resources whose objects own other objects.
func owners() []string {
	return []string{
		"replicasets.apps", "statefulsets.apps", "daemonsets.apps", "deployments.apps", "jobs.batch", "cronjobs.batch",
	}
}

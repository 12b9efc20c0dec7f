package fleet

import (
	"cmp"
	"context"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watched is what one informer of a fleet watches.
type Watched struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Namespace that is watched; empty: all.
	Namespace                    string
	LabelSelector, FieldSelector string
	// Named says that a pattern without wildcards matches: the fleet is not ready without this resource.
	Named bool
	// Auxiliary says that no sink receives it; see Scope.
	Auxiliary bool
	// Aggregated says that an aggregated API server serves it, which is not asked for watch-lists.
	Aggregated bool
}

// Preview is what a fleet would watch if it ran now.
type Preview struct {
	// Watched is in the order of resources and namespaces.
	Watched []Watched
	// Problems say what the scopes select and cannot be watched.
	Problems []string
	// Silent are the group/versions that the API server lists but that do not answer.
	Silent map[schema.GroupVersion]error
}

// Preview discovers what the cluster serves, and starts nothing. It may be called with or without Run.
func (s *Fleet) Preview(ctx context.Context) (Preview, error) {
	found, err := s.discovery.Discover(ctx)
	if err != nil {
		return Preview{}, err
	}
	p := newPlan(s.config.Scopes, found)
	view := Preview{Problems: p.problems, Silent: found.Failed}
	for key, w := range p.informers {
		labels, fields := w.selection.server()
		view.Watched = append(view.Watched, Watched{
			Resource:      w.served.WithVersion(w.version),
			Namespaced:    w.served.Namespaced,
			Namespace:     key.namespace,
			LabelSelector: labels,
			FieldSelector: fields,
			Named:         w.named,
			Auxiliary:     key.auxiliary,
			Aggregated:    w.served.Aggregated,
		})
	}
	slices.SortFunc(view.Watched, func(a, b Watched) int {
		return cmp.Or(
			cmp.Compare(a.Resource.Group, b.Resource.Group),
			cmp.Compare(a.Resource.Resource, b.Resource.Resource),
			cmp.Compare(
				a.Namespace,
				b.Namespace,
			),
			cmp.Compare(a.LabelSelector, b.LabelSelector),
			cmp.Compare(a.FieldSelector, b.FieldSelector),
		)
	})
	return view, nil
}

// ServerSelectors returns the selectors that the API server evaluates for the informer that watches a resource in a
// namespace, which is empty for a cluster-scoped resource. They are empty if there are none, or if no scope selects the
// resource.
func ServerSelectors(scopes []Scope, served discovery.Served, namespace string) (labels, fields string) {
	p := newPlan(scopes, &discovery.Catalog{Served: []discovery.Served{served}})
	key, found := p.owner(served.GroupResource, false, namespace)
	if !found {
		return "", ""
	}
	return p.informers[key].selection.server()
}

package fleet

import (
	"context"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watched describes the objects that one informer of a fleet watches.
type Watched struct {
	informer.Source
	Namespaced bool
	// Named reports whether a pattern without wildcards matches the resource. The fleet is not ready without this
	// resource.
	Named bool
	// Auxiliary reports whether the objects are watched only for enrichment; see Scope.
	Auxiliary bool
}

// Preview describes the resources that a fleet would watch if it ran now.
type Preview struct {
	// Watched is sorted by the names of the sources.
	Watched []Watched
	// Problems explains which selected resources cannot be watched, and why.
	Problems []string
	// Silent contains the group/versions that the API server lists but whose discovery failed.
	Silent map[schema.GroupVersion]error
}

// Preview discovers which resources the cluster serves. It does not start informers. It may be called before, during
// and after Run.
func (s *Fleet) Preview(ctx context.Context) (Preview, error) {
	found, err := s.discovery.Discover(ctx)
	if err != nil {
		return Preview{}, err
	}
	p := newPlan(s.config.Scopes, found)
	view := Preview{Problems: p.problems, Silent: found.Failed}
	for key, w := range p.informers {
		view.Watched = append(view.Watched, Watched{
			Source:     key.source(w),
			Namespaced: w.served.Namespaced,
			Named:      w.named,
			Auxiliary:  key.auxiliary,
		})
	}
	slices.SortFunc(view.Watched, func(a, b Watched) int { return strings.Compare(a.Name, b.Name) })
	return view, nil
}

// Offline returns the informers that a fleet would run if the cluster served the given resources, in the order in which
// they would start. They have no API server: the caller fills their stores ([informer.Informer.Store]).
func Offline(scopes []Scope, served []discovery.Served) (informers []*informer.Informer) {
	p := newPlan(scopes, &discovery.Catalog{Served: served})
	for _, key := range p.order() {
		informers = append(informers, informer.New(key.config(p.informers[key])))
	}
	return informers
}

package explain

import (
	"context"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxOwners limits how many owners explain reads.
const maxOwners = 32

// learn adds to the index what `bridge run` would know about a subject: the object itself and, if the API server can be
// queried, its namespace, its owners and its involved object. It returns notes about what could not be read.
func (o *Options) learn(ctx context.Context, index *enrich.Index, s *subject) (notes []string) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	learn := func(resource schema.GroupVersionResource, o *object.Object) {
		index.Handler(resource, func() {}).OnAdd(o, false)
	}
	learn(s.resource, s.now)
	if s.api == nil {
		return []string{"enrich: other objects are unknown, because the API server was not queried"}
	}
	if s.now.Namespace != "" {
		namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
		found, err := s.api.get(ctx, namespaces, "", s.now.Namespace, "", "")
		switch {
		case err != nil:
			notes = append(notes, "enrich: cannot read the namespace: "+err.Error())
		case found != nil:
			learn(namespaces, found)
		}
	}
	for last, depth := "", 0; depth < maxOwners; depth++ {
		top := index.Context(s.resource, s.now, enrich.Needs{Owner: true, InvolvedObject: true}).Owner
		if top.UID == last {
			return notes
		}
		last = top.UID
		served := s.api.servedAs(schema.FromAPIVersionAndKind(top.APIVersion, top.Kind))
		if served == nil {
			return notes // `bridge run` does not know more than the reference either
		}
		namespace := s.now.Namespace
		if !served.Namespaced {
			namespace = ""
		}
		gvr := served.WithVersion(served.Versions[0])
		found, err := s.api.get(ctx, gvr, namespace, top.Name, "", "")
		if err != nil {
			notes = append(notes, "enrich: cannot read "+top.String()+": "+err.Error())
		}
		if found == nil || string(found.UID) != top.UID {
			return notes
		}
		learn(gvr, found)
	}
	return notes
}

// servedAs returns the resource of a kind. It returns nil if the cluster does not serve the kind or a is nil.
func (a *apiServer) servedAs(gvk schema.GroupVersionKind) *discovery.Served {
	if a == nil {
		return nil
	}
	n := slices.IndexFunc(a.served, func(s discovery.Served) bool {
		return s.Group == gvk.Group && s.Kind == gvk.Kind && slices.Contains(s.Versions, gvk.Version)
	})
	if n < 0 {
		return nil
	}
	return &a.served[n]
}

package explain

import (
	"context"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxOwners is how many owners explain asks for.
const maxOwners = 32

// learn makes the index know of a subject what it would know in run: the object, and if the API server can be asked its
// namespace, its owners, and what it is about. The notes say what it could not.
func (o *Options) learn(ctx context.Context, index *enrich.Index, s *subject) (notes []string) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	learn := func(resource schema.GroupVersionResource, o *object.Object) {
		index.Handler(resource, func() {}).OnAdd(o, false)
	}
	learn(s.resource, s.now)
	if s.api == nil {
		return []string{"enrich: run knows more of other objects: the API server was not asked about them"}
	}
	if s.now.Namespace != "" {
		namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
		found, err := s.api.get(ctx, namespaces, "", s.now.Namespace, "", "")
		switch {
		case err != nil:
			notes = append(notes, "enrich: the namespace can't be read: "+err.Error())
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
			return notes // the reference is all that run knows, too
		}
		namespace := s.now.Namespace
		if !served.Namespaced {
			namespace = ""
		}
		gvr := served.WithVersion(served.Versions[0])
		found, err := s.api.get(ctx, gvr, namespace, top.Name, "", "")
		if err != nil {
			notes = append(notes, "enrich: "+top.String()+" can't be read: "+err.Error())
		}
		if found == nil || string(found.UID) != top.UID {
			return notes
		}
		learn(gvr, found)
	}
	return notes
}

// servedAs is the resource of a kind; nil if there is none.
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

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// connect discovers the resources that the API server serves, and reads the uid of the cluster.
func (e *explainer) connect(ctx context.Context) error {
	client, found, err := assemble.Discover(ctx, e.cfg, "deltabridge-explain/"+e.Version)
	if err != nil {
		return err
	}
	uid, err := tracker.ReadClusterUID(ctx, client)
	if err == nil {
		e.client, e.served, e.uid = client, found.Served, uid
	}
	return err
}

// get reads one object with a list request, as `bridge run` does. It returns nil if the object does not exist or the
// field selector does not select it.
func (e *explainer) get(
	ctx context.Context, gvr schema.GroupVersionResource, namespace, name, fieldSelector string,
) (*object.Object, error) {
	selectors := []string{"metadata.name=" + name}
	if fieldSelector != "" {
		selectors = append(selectors, fieldSelector)
	}
	source := informer.Source{Resource: gvr, Namespace: namespace, FieldSelector: strings.Join(selectors, ",")}
	lister := informer.ListWatch(e.client, source)
	lister.ManagedFields = true // required for `payload: change`
	found, err := lister.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range found.(*object.List).Items {
		return o, nil
	}
	return nil, nil
}

// find returns the resource with the given name. The name is a resource pattern, or a kind or plural that is unique
// among all groups.
func (e *explainer) find(name string) (discovery.Served, error) {
	wanted, err := pattern.ParseResource(strings.ToLower(name))
	if err != nil {
		return discovery.Served{}, fmt.Errorf("%s: %w", name, err)
	}
	var matches []discovery.Served
	for _, s := range e.served {
		if slices.ContainsFunc(s.Versions, func(version string) bool { return wanted.Matches(s.WithVersion(version)) }) {
			return s, nil
		}
		if strings.EqualFold(s.Resource, name) || strings.EqualFold(s.Kind, name) {
			matches = append(matches, s)
		}
	}
	switch len(matches) {
	case 0:
		return discovery.Served{}, fmt.Errorf("the cluster has no resource %s that can be listed and watched", name)
	case 1:
		return matches[0], nil
	}
	return discovery.Served{}, fmt.Errorf("%s is ambiguous; use one of %v", name, matches)
}

// servedAs returns the resource of a kind. It returns false if the cluster does not serve the kind or was not queried.
func (e *explainer) servedAs(gvk schema.GroupVersionKind) (served discovery.Served, ok bool) {
	for _, s := range e.served {
		if s.Group == gvk.Group && s.Kind == gvk.Kind && slices.Contains(s.Versions, gvk.Version) {
			return s, true
		}
	}
	return served, false
}

// readNamespace reads the labels of the object's namespace, for filters that depend on them. It returns a note if they
// cannot be read.
func (e *explainer) readNamespace(ctx context.Context, s *subject) (notes []string) {
	const unknown = "namespaceSelector: the labels of the namespace are unknown"
	name := s.now.Namespace
	switch {
	case name == "":
		return nil
	case e.client == nil:
		return []string{unknown + ", because the API server was not queried"}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := e.get(ctx, namespaces(), "", name, "")
	switch {
	case err != nil:
		return []string{unknown + ": " + err.Error()}
	case found == nil:
		return []string{unknown + ", because it does not exist"}
	}
	s.namespaces = filter.Namespaces{name: found.GetLabels()}
	return nil
}

func namespaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

// maxOwners is the maximum number of owners that learn reads.
const maxOwners = 32

// learn fills the subject's index with the objects that `bridge run` would know: the object itself and, if the API
// server can be queried, its namespace, its owners and its involved object. It returns notes about objects that could
// not be read.
func (e *explainer) learn(ctx context.Context, s *subject) (notes []string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	add := func(resource schema.GroupVersionResource, o *object.Object) {
		s.index.Handler(resource, func() {}).OnAdd(o, false)
	}
	read := func(resource schema.GroupVersionResource, namespace, name string) *object.Object {
		found, err := e.get(ctx, resource, namespace, name, "")
		if err != nil {
			notes = append(notes, fmt.Sprintf("enrich: cannot read %s %s: %v", resource.GroupResource(), name, err))
		}
		return found
	}
	add(s.resource, s.now)
	if e.client == nil {
		return []string{"enrich: other objects are unknown, because the API server was not queried"}
	}
	if s.now.Namespace != "" {
		if found := read(namespaces(), "", s.now.Namespace); found != nil {
			add(namespaces(), found)
		}
	}
	last := ""
	for range maxOwners {
		top := s.index.Context(s.resource, s.now, enrich.Needs{Owner: true, InvolvedObject: true}).Owner
		served, ok := e.servedAs(schema.FromAPIVersionAndKind(top.APIVersion, top.Kind))
		if top.UID == last || !ok {
			break // `bridge run` does not know more than the owner reference either
		}
		last = top.UID
		namespace := s.now.Namespace
		if !served.Namespaced {
			namespace = ""
		}
		resource := served.WithVersion(served.Versions[0])
		found := read(resource, namespace, top.Name)
		if found == nil || string(found.UID) != top.UID {
			break
		}
		add(resource, found)
	}
	return notes
}

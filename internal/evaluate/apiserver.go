package evaluate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
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
) (state, error) {
	selector := strings.Trim("metadata.name="+name+","+fieldSelector, ",")
	result := e.client.Get().AbsPath(informer.ResourcePath(gvr, namespace)).Param("fieldSelector", selector).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	raw, _ := result.Raw()
	list := &unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(raw); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
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

// maxRelated is the maximum number of objects that readRelated reads.
const maxRelated = 32

// readRelated reads what `bridge run` knows in addition to the object, if a sink requires it: its namespace, the object
// that an Event is about, and the owners. It returns notes about objects that could not be read.
func (e *explainer) readRelated(ctx context.Context, s *subject) (related []change, notes []string) {
	var needs enrich.Needs
	for n := range e.cfg.Sinks {
		needs = needs.Or(e.cfg.Sinks[n].Enrich)
	}
	namespace := s.last().GetNamespace()
	byNamespace := namespace != "" && (needs.NamespaceLabels || e.cfg.SelectsNamespaces())
	byOwner := needs.Owner || needs.InvolvedObject
	switch {
	case !byNamespace && !byOwner:
		return nil, nil
	case e.client == nil:
		return nil, []string{"the namespace and the owners are unknown, because the API server was not queried"}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	read := func(served discovery.Served, name string) state {
		resource, in := served.WithVersion(served.Versions[0]), ""
		if served.Namespaced {
			in = namespace
		}
		found, err := e.get(ctx, resource, in, name, "")
		switch {
		case err != nil:
			notes = append(notes, fmt.Sprintf("cannot read %s %s: %v", served.String(), name, err))
		case found == nil:
			notes = append(notes, fmt.Sprintf("%s %s does not exist", served.String(), name))
		default:
			related = append(related, change{served: served, resource: resource, now: found})
		}
		return found
	}
	if byNamespace {
		namespaces := schema.GroupResource{Resource: "namespaces"}
		read(discovery.Served{GroupResource: namespaces, Versions: []string{"v1"}}, namespace)
	}
	for ref := reference(s.last()); byOwner && ref != nil && len(related) < maxRelated; {
		served, ok := e.servedAs(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		if !ok {
			break // `bridge run` does not know more than the reference either
		}
		found := read(served, ref.Name)
		if found == nil || found.GetUID() != ref.UID {
			break
		}
		ref = reference(found)
	}
	return related, notes
}

// reference returns the object that an Event is about or, for other objects, the owner: the controller or, if there is
// no controller, the first owner.
func reference(o state) *metav1.OwnerReference {
	for _, field := range []string{"involvedObject", "regarding"} {
		if about, found, _ := unstructured.NestedStringMap(o.Object, field); found && o.GetKind() == "Event" {
			return &metav1.OwnerReference{
				APIVersion: about["apiVersion"], Kind: about["kind"], Name: about["name"], UID: types.UID(about["uid"]),
			}
		}
	}
	if controller := metav1.GetControllerOf(o); controller != nil {
		return controller
	}
	for _, owner := range o.GetOwnerReferences() {
		return &owner
	}
	return nil
}

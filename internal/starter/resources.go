package starter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
)

const (
	// maxParallel is the maximum number of resources that are examined concurrently.
	maxParallel = 8
	// requestTimeout is the time limit for the requests about one resource.
	requestTimeout = 10 * time.Second
)

// resource is a resource that the user may list and watch.
type resource struct {
	Name    string // as in `watch[].resources`
	Objects int64
	Reason  string // why the resource should not be watched; empty if it should

	namespace string // empty: in all namespaces
	denied    bool   // the user may not list or watch the resource
}

// rarelyOfInterest returns the resources that are not watched by default, and the reasons.
func rarelyOfInterest() map[string]string {
	const derived, internal = "derived from Services and Pods", "used only by Kubernetes itself"
	return map[string]string{
		"leases.coordination.k8s.io":               "renewed every few seconds",
		"events":                                   "many, and they expire after an hour",
		"events.events.k8s.io":                     "the same objects as events",
		"secrets":                                  "values are sent as fingerprints, but the bridge can read all of them",
		"endpoints":                                derived,
		"endpointslices.discovery.k8s.io":          derived,
		"controllerrevisions.apps":                 "old revisions of other objects",
		"apiservices.apiregistration.k8s.io":       internal,
		"flowschemas.flowcontrol.apiserver.k8s.io": internal,
		"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": internal,
		"ipaddresses.networking.k8s.io":                            internal,
		"servicecidrs.networking.k8s.io":                           internal,
		"clustertrustbundles.certificates.k8s.io":                  internal,
		"csinodes.storage.k8s.io":                                  internal,
		"csistoragecapacities.storage.k8s.io":                      internal,
	}
}

// findResources returns the resources that the API server serves, in its order. namespace is where permissions are
// sufficient if the user has none in the whole cluster.
func findResources(
	parent context.Context, client rest.Interface, served []discovery.Served, namespace string,
) ([]resource, error) {
	found, reasons := make([]resource, len(served)), rarelyOfInterest()
	group, ctx := errgroup.WithContext(parent)
	group.SetLimit(maxParallel)
	for n := range served {
		group.Go(func() (err error) {
			limited, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			found[n], err = examine(limited, client, &served[n], namespace)
			found[n].Reason = cmp.Or(reasons[found[n].Name], found[n].Reason)
			return err
		})
	}
	err := group.Wait()
	return found, cmp.Or(err, parent.Err())
}

// examine checks the permissions for a resource, and counts its objects.
func examine(
	ctx context.Context, client rest.Interface, served *discovery.Served, namespace string,
) (r resource, err error) {
	r.Name = served.GroupResource.String()
	allowed, err := mayWatch(ctx, client, served, "")
	if err == nil && !allowed && served.Namespaced {
		r.namespace = namespace
		allowed, err = mayWatch(ctx, client, served, namespace)
	}
	if r.denied = !allowed; err != nil || r.denied {
		return r, err
	}
	path := informer.ResourcePath(served.WithVersion(served.Versions[0]), r.namespace)
	var list metav1.PartialObjectMetadataList
	data, err := client.Get().AbsPath(path).Param("limit", "1").MaxRetries(0).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil { // for example, an aggregated API server or a conversion webhook does not answer
		r.Reason = "cannot be listed now"
		return r, nil //nolint:nilerr // other resources are not affected
	}
	r.Objects = int64(len(list.Items)) + *cmp.Or(list.RemainingItemCount, new(int64))
	return r, nil
}

// mayWatch asks the API server whether the user may list and watch a resource.
func mayWatch(ctx context.Context, client rest.Interface, served *discovery.Served, namespace string) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		allowed, err := assemble.IsAllowed(ctx, client, authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: served.Group, Resource: served.Resource,
			},
		})
		if err != nil {
			return false, fmt.Errorf("check the permission to %s %s: %w", verb, served.GroupResource, err)
		}
		if !allowed {
			return false, nil
		}
	}
	return true, nil
}

// entry is an entry of `watch`, with the resources that it has in comments.
type entry struct {
	Namespace          string
	Watch, Empty, Rare []resource
}

// entries groups resources into an entry for all namespaces and one for the namespace of the kubeconfig. Entries that
// would select nothing are omitted.
func entries(found []resource) (all []entry, denied []string) {
	for _, r := range found {
		if r.denied {
			denied = append(denied, r.Name)
			continue
		}
		n := slices.IndexFunc(all, func(e entry) bool { return e.Namespace == r.namespace })
		if n < 0 {
			n, all = len(all), append(all, entry{Namespace: r.namespace})
		}
		switch e := &all[n]; {
		case r.Reason != "":
			e.Rare = append(e.Rare, r)
		case r.Objects == 0:
			e.Empty = append(e.Empty, r)
		default:
			e.Watch = append(e.Watch, r)
		}
	}
	for n := range all {
		if len(all[n].Watch) == 0 { // a new namespace or cluster
			all[n].Watch, all[n].Empty = all[n].Empty, nil
		}
	}
	return slices.DeleteFunc(all, func(e entry) bool { return len(e.Watch) == 0 }), denied
}

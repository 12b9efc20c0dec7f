package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubediscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Served is a resource that the cluster serves.
type Served struct {
	schema.GroupResource
	Kind       string
	Namespaced bool
	Versions   []string // versions that can be listed and watched, in the server's order of preference
	// Aggregated reports whether an aggregated API server serves the resource. Watch-lists of such servers may never end
	// (kubernetes#140890).
	Aggregated bool
	// Defined reports whether, as far as is known, a CustomResourceDefinition defines the resource. When the definition is
	// deleted, so are the objects. Objects of other resources may still exist when no API server serves them any more.
	Defined bool
}

// Discoverer finds out which resources the API server serves.
type Discoverer struct {
	client kubediscovery.DiscoveryInterfaceWithContext
	raw    limited // reads APIServices, and requests resources
}

// requestTimeout is the time limit for the requests of a client from NewClient. client-go uses the same timeout for
// discovery. A server that never responds, for example a proxy, must not end the search for resources.
const requestTimeout = 32 * time.Second

// NewClient returns a discovery client that sends its requests with client, for example one that informer.NewClient
// returned.
func NewClient(client rest.Interface) kubediscovery.DiscoveryInterfaceWithContext {
	return kubediscovery.NewDiscoveryClient(limited{client})
}

// limited is a client whose requests have a timeout.
type limited struct{ rest.Interface }

func (l limited) Get() *rest.Request { return l.Interface.Get().Timeout(requestTimeout) }

// New returns a Discoverer. raw is a client for all resources, for example one of informer.NewClient.
func New(client kubediscovery.DiscoveryInterfaceWithContext, raw rest.Interface) *Discoverer {
	return &Discoverer{client: client, raw: limited{raw}}
}

// Catalog is the result of a discovery.
type Catalog struct {
	Served []Served
	// Failed contains the group/versions that could not be discovered. Nothing is known about their resources.
	Failed map[schema.GroupVersion]error
}

// FailedGroup reports whether the discovery of a version of the group failed.
func (c *Catalog) FailedGroup(group string) bool {
	for gv := range c.Failed {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// Discover lists all resources that can be listed and watched. Resources of the core group come first, the others
// follow in the server's order.
func (d *Discoverer) Discover(ctx context.Context) (*Catalog, error) {
	groups, lists, err := d.client.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := kubediscovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return nil, fmt.Errorf("discover what the API server serves: %w", err)
	}
	services, err := d.services(ctx)
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	byGroupVersion := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		byGroupVersion[list.GroupVersion] = list
	}
	c := &Catalog{Failed: failed}
	for _, group := range groups {
		c.Served = append(c.Served, servedByGroup(group, byGroupVersion, services)...)
	}
	return c, nil
}

func servedByGroup(
	group *metav1.APIGroup, lists map[string]*metav1.APIResourceList, services map[schema.GroupVersion]service,
) []Served {
	versions := []string{group.PreferredVersion.Version}
	for _, v := range group.Versions {
		if v.Version != group.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	var served []Served
	for _, version := range versions {
		gv := schema.GroupVersion{Group: group.Name, Version: version}
		list := lists[gv.String()]
		if list == nil {
			continue
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			at := slices.IndexFunc(served, func(s Served) bool { return s.Resource == r.Name })
			if at >= 0 {
				served[at].Versions = append(served[at].Versions, version)
				continue
			}
			served = append(served, Served{
				GroupResource: schema.GroupResource{Group: group.Name, Resource: r.Name}, Kind: r.Kind,
				Namespaced: r.Namespaced, Versions: []string{version},
				Aggregated: services[gv] == aggregated, Defined: services[gv] == definedOrUnknown,
			})
		}
	}
	return served
}

// service is the kind of server that serves a group/version.
type service int

const (
	definedOrUnknown service = iota
	builtIn
	aggregated
)

// automanaged is the label of APIServices that kube-apiserver manages. Its value is "onstart" for the server's own
// groups and "true" for groups of CustomResourceDefinitions.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// services determines which kind of server serves each group/version. If RBAC forbids reading APIServices, or if they
// do not exist, it returns nil, and nothing is known about the group/versions.
func (d *Discoverer) services(ctx context.Context) (map[schema.GroupVersion]service, error) {
	raw, err := d.raw.Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").DoRaw(ctx)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Group, Version string
				Service        *struct{}
			}
		}
	}
	if err = json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	services := map[schema.GroupVersion]service{}
	for _, doc := range list.Items {
		gv := schema.GroupVersion{Group: doc.Spec.Group, Version: doc.Spec.Version}
		switch {
		case doc.Spec.Service != nil:
			services[gv] = aggregated
		case doc.Metadata.Labels[automanaged] == "onstart":
			services[gv] = builtIn
		}
	}
	return services, nil
}

// Gone asks the API server about one resource that discovery no longer lists. It returns true only if requests for the
// resource return 404 and, unless the resource is aggregated, requests for its CustomResourceDefinition return 404 or
// are forbidden. A discovery document alone does not prove that a resource was removed, because the document of a
// restarting API server lacks all resources that are not loaded yet. namespace is the namespace that is watched, or
// empty for all namespaces: RBAC may allow requests in this namespace only.
func (d *Discoverer) Gone(
	ctx context.Context, gvr schema.GroupVersionResource, namespace string, aggregated bool,
) bool {
	err := d.raw.Get().AbsPath(informer.ResourcePath(gvr, namespace)).Param("limit", "1").Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return false
	}
	if aggregated {
		return true
	}
	err = d.raw.Get().AbsPath(definitionsPath, gvr.GroupResource().String()).Do(ctx).Error()
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

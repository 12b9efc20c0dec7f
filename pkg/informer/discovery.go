package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/deltabridge/deltabridge/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Served is a resource that the cluster serves, with the versions in which it can be listed and watched.
type Served struct {
	schema.GroupResource
	Kind       string
	Namespaced bool
	Versions   []string // with list and watch, the server's preferred one first
	// Aggregated: an API server of its own stands behind the group. Its watch-lists may never end
	// (kubernetes#140890), and its objects are not deleted when the group disappears.
	Aggregated bool
}

// discoverer asks the API server what it serves.
type discoverer struct {
	client discovery.DiscoveryInterfaceWithContext
	raw    rest.Interface // reads APIServices and CRDs as raw objects
}

// catalog is what a discovery found.
type catalog struct {
	served []Served
	// failed are group/versions whose server did not answer: nothing is known about their resources.
	failed map[schema.GroupVersion]error
}

func (c *catalog) failedGroup(group string) bool {
	for gv := range c.failed {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// discover lists all resources that can be listed and watched, core group first, then in the server's order.
// Resources of one storage under two names (Events of the core group and of events.k8s.io) are given by sameStorage.
func (d *discoverer) discover(ctx context.Context) (*catalog, error) {
	groups, lists, err := d.client.ServerGroupsAndResourcesWithContext(ctx)
	c := &catalog{}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		c.failed = partial.Groups
	case err != nil:
		return nil, fmt.Errorf("discover what the API server serves: %w", err)
	}
	aggregated := d.aggregatedGroups(ctx)
	byGroupVersion := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		byGroupVersion[list.GroupVersion] = list
	}
	for _, group := range groups {
		c.served = append(c.served, servedByGroup(group, byGroupVersion, aggregated)...)
	}
	return c, nil
}

func servedByGroup(group *metav1.APIGroup, lists map[string]*metav1.APIResourceList, aggregated map[schema.GroupVersion]bool) []Served {
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
				Namespaced: r.Namespaced, Versions: []string{version}, Aggregated: aggregated[gv],
			})
		}
	}
	return served
}

// sameStorage reports which of the candidates are another name for the storage of an earlier one, by equal
// storageVersionHash. Only legacy discovery documents carry the hash, so they are read for those resources alone
// whose name and kind occur in several groups.
func (d *discoverer) sameStorage(ctx context.Context, candidates []Served) map[schema.GroupResource]schema.GroupResource {
	type name struct{ resource, kind string }
	groups := map[name][]Served{}
	for _, s := range candidates {
		n := name{s.Resource, s.Kind}
		groups[n] = append(groups[n], s)
	}
	same := map[schema.GroupResource]schema.GroupResource{}
	for _, candidates := range groups {
		if len(candidates) < 2 {
			continue
		}
		first := map[string]schema.GroupResource{}
		for _, s := range candidates {
			hash := d.storageVersionHash(ctx, s)
			if hash == "" {
				continue
			}
			if earlier, ok := first[hash]; ok {
				same[s.GroupResource] = earlier
			} else {
				first[hash] = s.GroupResource
			}
		}
	}
	return same
}

func (d *discoverer) storageVersionHash(ctx context.Context, s Served) string {
	gv := schema.GroupVersion{Group: s.Group, Version: s.Versions[0]}
	list, err := d.client.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return ""
	}
	for _, r := range list.APIResources {
		if r.Name == s.Resource {
			return r.StorageVersionHash
		}
	}
	return ""
}

// aggregatedGroups are the group/versions with an API server of their own. Where APIServices may not be read, all
// count as the API server's own.
func (d *discoverer) aggregatedGroups(ctx context.Context) map[schema.GroupVersion]bool {
	list := &object.List{}
	if err := d.raw.Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").Do(ctx).Into(list); err != nil {
		return nil
	}
	aggregated := map[schema.GroupVersion]bool{}
	for _, o := range list.Items {
		doc, err := o.Map()
		o.Forget()
		if err != nil {
			continue
		}
		spec, _ := doc["spec"].(map[string]any)
		if spec["service"] == nil {
			continue
		}
		group, _ := spec["group"].(string)
		version, _ := spec["version"].(string)
		aggregated[schema.GroupVersion{Group: group, Version: version}] = true
	}
	return aggregated
}

// gone asks the API server about one resource that discovery no longer lists. It is true only on the server's own
// word: its path answers 404, and for a resource of its own the CustomResourceDefinition does too. A discovery
// document alone is no proof: a restarting API server serves one that lacks what it has not loaded yet.
func (d *discoverer) gone(ctx context.Context, gvr schema.GroupVersionResource, aggregated bool) bool {
	one := metav1.ListOptions{Limit: 1}
	err := d.raw.Get().AbsPath(resourcePath(gvr, "")).
		SpecificallyVersionedParams(&one, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return false
	}
	if aggregated {
		return true
	}
	err = d.raw.Get().AbsPath(crdPath, gvr.GroupResource().String()).Do(ctx).Error()
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

package fleet_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

// failing is discovery that fails for one group/version while fails is set.
type failing struct {
	discovery.DiscoveryInterfaceWithContext
	version schema.GroupVersion
	fails   atomic.Bool
	looks   atomic.Int64 // that failed
}

func (f *failing) ServerGroupsAndResourcesWithContext(
	ctx context.Context,
) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := f.DiscoveryInterfaceWithContext.ServerGroupsAndResourcesWithContext(ctx)
	if err == nil && f.fails.Load() {
		f.looks.Add(1)
		lists = slices.DeleteFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == f.version.String() })
		err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{f.version: errors.New("no answer")}}
	}
	return groups, lists, err
}

// The discovery of the watched version fails, and that of another version does not. The watch of the first one
// continues.
func TestDiscoveryOfTheWatchedVersionFails(t *testing.T) {
	t.Parallel()
	c, k := cluster.Shared(t), newKube(t)
	crd := kind{"valves", "valves.example.com"}
	k.define(crd, nil, "v1", "v2")
	defer k.undefine(crd)
	k.put(crd, "v1", "one", "1")
	f := &failing{version: crd.in("v2").GroupVersion()}
	w := watchScopes(t, c.RESTConfig(), func(sc *setup) {
		f.DiscoveryInterfaceWithContext, sc.Discovery = sc.Discovery, f
	}, fleet.Scope{Resources: fleet.Patterns(t, "valves.valves.example.com")})
	w.waitReady()
	seen := w.record(crd.name())
	f.fails.Store(true)
	k.redefine(crd, nil, "v1", "v2") // so that the fleet looks
	observe.Eventually(t, func() error {
		if f.looks.Load() < 2 {
			return errors.New("it has not looked")
		}
		return nil
	})
	k.put(crd, "v1", "one", "2")
	seen.WaitFor(t, "update one")
	if started := w.started(crd.name()); len(started) != 1 || started[0].Resource().Version != "v2" {
		t.Errorf("%d informers were started", len(started))
	}
}

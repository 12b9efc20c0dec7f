package engine

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
)

// buildSet creates the API server client and the set of informers.
func (e *Engine) buildSet() error {
	o := &e.options
	kube := rest.CopyConfig(o.Kube)
	kube.WarningHandler = rest.NoWarnings{} // deprecation warnings are relevant only to clients that write objects
	e.connector = informer.NewConnector(kube.Dial)
	kube.Dial = e.connector.Dial
	var err error
	if e.client, err = informer.NewClient(kube); err != nil {
		return fmt.Errorf("create API server client: %w", err)
	}
	kube.QPS, kube.Burst = -1, 0 // discovery needs few requests, and API Priority and Fairness protects the API server
	disco, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	e.set = fleet.New(fleet.Config{
		Client:        e.client,
		Connector:     e.connector,
		Discovery:     disco,
		Scopes:        o.Scopes,
		ManagedFields: o.ManagedFields,
		Transform:     o.Transform,
		Logger:        o.Logger,
		State:         e.tracker,
		OnStart:       e.attach,
	})
	return nil
}

package engine

import (
	"fmt"

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
	e.set = fleet.New(fleet.Config{
		Client:        e.client,
		Connector:     e.connector,
		Scopes:        o.Scopes,
		ManagedFields: o.ManagedFields,
		Transform:     o.Transform,
		Logger:        o.Logger,
		State:         e.tracker,
		OnStart:       e.attach,
	})
	return nil
}

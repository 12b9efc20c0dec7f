package engine

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/ledger"
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

// attach connects a new informer to every pipeline. Enrichment is attached first, so it has processed an object before
// any pipeline asks for the object's context.
func (e *Engine) attach(i *informer.Informer) {
	source := i.Source().Name
	e.attachTo(i, e.tracker.Ledger(source), func(sink string) tracker.Knowledge {
		known := e.tracker.Known(source, sink)
		if i.ResumesAt() == "" { // the settled position counts only if the informer resumes there
			known.Floor = ""
		}
		return known
	})
}

// attachTo is attach with the ledger of the source and a function that returns what a sink knows of the source.
func (e *Engine) attachTo(i *informer.Informer, to *ledger.Ledger, known func(sink string) tracker.Knowledge) {
	e.enrichment.attach(i)
	for _, p := range e.pipelines {
		e.attachPipeline(p, i, to, known)
	}
}

func (e *Engine) attachPipeline(
	p *pipeline, i *informer.Informer, to *ledger.Ledger, known func(sink string) tracker.Knowledge,
) {
	p.filtering.Lock()
	defer p.filtering.Unlock()
	if i.Auxiliary() || p.audit != nil {
		to.FinishList(p.Name) // the sink is not sent objects that are watched only for enrichment, or no objects at all
		p.attached[i.Source().Name] = nil
		return
	}
	p.attach(e.reading, i, to, known(p.Name))
}

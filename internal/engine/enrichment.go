package engine

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// learnPatience is the maximum time that informers wait at the start until the others have reported their objects.
// learnPause is the interval between two checks.
const (
	learnPatience = 10 * time.Second
	learnPause    = 10 * time.Millisecond
)

// enrichment connects informers to the index that enriches the events of sinks. A nil *enrichment is valid and does
// nothing. It is safe for concurrent use.
type enrichment struct {
	index *enrich.Index
	// ctx ends when no more changes are read.
	ctx context.Context //nolint:containedctx // handlers of informers are called without one

	// needed contains the resources whose facts the informers wait for at the start.
	needed      map[string]bool
	awaitLaunch func() // waits until all informers that are required at the moment are attached

	mu      sync.Mutex
	sources map[string]*informer.Informer // informers that are attached, by source
	// by source: informers that enrichment waits for, because their initial list is not complete
	pending map[string]*informer.Informer
	// end of the wait for pending informers; zero until the first informer has reported
	deadline time.Time
}

// newEnrichment builds the index for the needs of all sinks. It returns nil if no sink requires enrichment. Informers
// call awaitLaunch, which returns when all informers that are required at the moment are attached.
func newEnrichment(ctx context.Context, of Enrichment, all []Sink, awaitLaunch func()) *enrichment {
	var needs enrich.Needs
	for n := range all {
		needs = needs.Or(all[n].Enrich)
	}
	if needs == (enrich.Needs{}) {
		return nil
	}
	return &enrichment{
		index: enrich.New(enrich.Options{Needs: needs, Bytes: of.FactBytes}), ctx: ctx, needed: of.Awaited,
		awaitLaunch: awaitLaunch, sources: map[string]*informer.Informer{}, pending: map[string]*informer.Informer{},
	}
}

// forSink returns the function that enriches the events of a sink with the given needs; nil if the sink has no needs.
func (e *enrichment) forSink(needs enrich.Needs) func(schema.GroupVersionResource, *object.Object) *event.Context {
	if e == nil || needs == (enrich.Needs{}) {
		return nil
	}
	return func(resource schema.GroupVersionResource, o *object.Object) *event.Context {
		return e.index.Context(resource, o, needs)
	}
}

// attach adds the index as a handler of an informer that is about to run. Call it before listeners are attached.
func (e *enrichment) attach(i *informer.Informer) {
	if e == nil {
		return
	}
	source := i.Source().Name
	handler := e.index.Handler(i.Resource(), func() { e.learned(source) })
	handler.Held = func(o *object.Object) bool { return e.heldByAnother(i, o) }
	i.AddEventHandlerWithReplay(handler, true) // the index may receive changes to objects that it does not know
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sources[source] = i // replaces an earlier informer of the source, whose objects are no longer updated
	if e.needed[event.GroupResource(i.Resource())] {
		e.pending[source] = i
	}
}

// heldByAnother reports whether an informer of another source still has an object that is gone from one informer.
// Several informers can watch parts of one resource, and an object that leaves a selector is not deleted. An informer
// removes an object from its indexer before it reports the removal. Therefore the last informer finds that no other
// informer has the object.
func (e *enrichment) heldByAnother(gone *informer.Informer, o *object.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for source, i := range e.sources {
		if source == gone.Source().Name || i.Resource().GroupResource() != gone.Resource().GroupResource() {
			continue
		}
		if known := i.Known(o.Key()); known != nil && known.UID == o.UID {
			return true
		}
	}
	return false
}

// learned records that an informer has reported its objects, and waits for the other informers. Events are then not
// pushed before the owners of their objects are known. The wait lasts at most learnPatience, and it ignores informers
// whose requests fail.
func (e *enrichment) learned(source string) {
	e.awaitLaunch()
	e.mu.Lock()
	delete(e.pending, source)
	if e.deadline.IsZero() {
		e.deadline = time.Now().Add(learnPatience)
	}
	ctx, cancel := context.WithDeadline(e.ctx, e.deadline)
	defer cancel()
	e.mu.Unlock()
	_ = wait.PollUntilContextCancel(ctx, learnPause, true, func(context.Context) (bool, error) {
		return !e.waits(), nil
	})
}

// waits reports whether a pending informer has not failed, so that events must still wait for it.
func (e *enrichment) waits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range e.pending {
		if i.Status().LastError == "" {
			return true
		}
	}
	return false
}

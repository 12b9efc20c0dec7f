package informer

import (
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/client-go/tools/cache"
)

// registration is one handler of an informer. Handlers are called synchronously, so when the informer has delivered the
// initial list, the handler has already processed it.
type registration struct {
	handler cache.ResourceEventHandler
	// waits reports whether the handler does not know the objects in Config.Known, and still has to receive them as its
	// initial list.
	waits bool
	// knows reports whether the handler may have received some of these objects before.
	knows bool
	// replays reports whether AddEventHandlerWithReplay added the handler.
	replays bool
}

// mayKnow reports whether the handler may have received the known objects.
func (r *registration) mayKnow() bool { return !r.waits || r.knows }

// Leaver is an optional interface for handlers that distinguish objects that left the scope from deleted objects. For
// other handlers, OnDelete is called.
type Leaver interface {
	// OnLeave is called with the last state that was in scope and the first state that is not. If the scope itself has
	// changed, both are the same state, because as far as the informer knows the object has not changed.
	OnLeave(last, now *object.Object)
}

// notify calls call for every handler that implements the optional interface T.
func notify[T any](handlers []*registration, call func(T)) {
	for _, r := range handlers {
		if h, ok := r.handler.(T); ok {
			call(h)
		}
	}
}

// AddEventHandler adds a handler that knows the objects in Config.Known. It must be called before Run.
func (i *Informer) AddEventHandler(h cache.ResourceEventHandler) { i.add(&registration{handler: h}) }

// AddEventHandlerWithReplay adds a handler that does not know the objects in Config.Known. It must be called before
// Run. The handler first receives these objects as its initial list, or, with Config.Relist, the objects of the first
// list. knows reports whether the handler may have received some of the known objects before. If it is set, the handler
// is also called for the known objects that changed, left or were deleted, before it receives the first list.
func (i *Informer) AddEventHandlerWithReplay(h cache.ResourceEventHandler, knows bool) {
	i.add(&registration{handler: h, waits: i.config.ResumeAt != "", knows: knows, replays: true})
}

func (i *Informer) add(r *registration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, r)
}

// replay delivers the known objects to new handlers. With Config.Relist, new handlers wait for the list, because the
// known states may be older than states that the previous process delivered. They also wait if the informer has
// succeeded another one, and lists anyway.
func (i *Informer) replay() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.handlers {
		if l, ok := r.handler.(FirstLister); ok && r.waits {
			l.OnFirstList(i.Objects())
			r.waits = false
		}
	}
	if i.resumesAt() != "" {
		i.handReplay(i.config.ResumeAt)
	}
	i.fetcher.forget()
}

// handReplay delivers the known objects, which are the state at resourceVersion, to new handlers. The caller must hold
// mu.
func (i *Informer) handReplay(resourceVersion string) {
	var known []*entry
	for n, r := range i.handlers {
		if !r.waits {
			continue
		}
		if known == nil {
			known = i.entries()
		}
		for _, e := range known {
			if i.skip() {
				return // it still waits, for the next process or for a successor
			}
			r.knows = true
			o := i.object(e)
			r.handler.OnAdd(o, true)
			e.decide(o)
		}
		r.waits = false
		notify(i.handlers[n:n+1], func(o Observer) { o.OnSynced(resourceVersion, len(known)) })
	}
}

// Handlers returns the handlers in the order in which they are called.
func (i *Informer) Handlers() []cache.ResourceEventHandler {
	i.mu.Lock()
	defer i.mu.Unlock()
	handlers := make([]cache.ResourceEventHandler, len(i.handlers))
	for n, r := range i.handlers {
		handlers[n] = r.handler
	}
	return handlers
}

package informer

import (
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/client-go/tools/cache"
)

// registration is one handler of an informer. Handlers are called synchronously, so that a handler has seen the initial
// list as soon as the informer has handed it over.
type registration struct {
	handler cache.ResourceEventHandler
	// replay says that the handler does not know the objects of Config.Known, and is given them when the informer runs.
	replay bool
	// knows says that the handler may have been given some of these objects before.
	knows bool
}

// Leaver is an optional interface of handlers that distinguish an object that is not watched any more from a deleted
// one. For other handlers OnDelete is called.
type Leaver interface {
	// OnLeave is given the last state that was watched, and the state that is not. They are the same if the scope has
	// changed, and not the object as far as is known.
	OnLeave(last, now *object.Object)
}

// notify calls the handlers that implement an optional interface.
func notify[T any](handlers []*registration, call func(T)) {
	for _, r := range handlers {
		if h, ok := r.handler.(T); ok {
			call(h)
		}
	}
}

// AddEventHandler adds h. If the informer has synced, h is first given each known object by OnAdd, as part of its
// initial list. h is expected to know the objects of Config.Known. h must not call methods of the informer that add or
// list handlers.
func (i *Informer) AddEventHandler(h cache.ResourceEventHandler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &registration{handler: h}
	if i.HasSynced() {
		objects := sorted(i.indexer.List())
		for _, o := range objects {
			h.OnAdd(o, true)
		}
		i.fetcher.forget()
		notify([]*registration{r}, func(o Observer) { o.OnSynced(i.position, len(objects)) })
	}
	i.handlers = append(i.handlers, r)
}

// AddEventHandlerWithReplay adds a handler that does not know the objects of Config.Known, before the informer runs. It
// is first given each of these objects as its initial list, or with Config.Relist each object of the list. If knows is
// set, it may have been given some of them before, and is also called for objects that left.
func (i *Informer) AddEventHandlerWithReplay(h cache.ResourceEventHandler, knows bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, &registration{handler: h, replay: i.config.ResumeAt != "", knows: knows})
}

// replay gives new handlers the known objects. With Config.Relist they wait for the list: the known states may be older
// than those that the previous process has handed on.
func (i *Informer) replay() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.handlers {
		if l, ok := r.handler.(FirstLister); ok && r.replay {
			l.OnFirstList(sorted(i.indexer.List()))
			r.replay = false
		}
	}
	i.fetcher.forget()
	if !i.config.Relist {
		i.handReplay(i.config.ResumeAt)
	}
}

// handReplay gives new handlers the known objects, which are the state at resourceVersion. The caller holds mu.
func (i *Informer) handReplay(resourceVersion string) {
	i.replayed = true
	var known []*object.Object
	for n, r := range i.handlers {
		if !r.replay {
			continue
		}
		if known == nil {
			known = sorted(i.indexer.List())
		}
		for _, o := range known {
			if i.skip() {
				return
			}
			r.handler.OnAdd(o, true)
		}
		i.fetcher.forget()
		notify(i.handlers[n:n+1], func(o Observer) { o.OnSynced(resourceVersion, len(known)) })
	}
}

// waits reports whether a handler waits for handReplay. The caller holds mu.
func (i *Informer) waits(r *registration) bool { return r.replay && !i.replayed }

// has reports whether a handler may have been given the known objects. The caller holds mu.
func (i *Informer) has(r *registration) bool {
	return !i.waits(r) || r.knows
}

// Handlers returns the added handlers, in the order in which they are called.
func (i *Informer) Handlers() []cache.ResourceEventHandler {
	i.mu.Lock()
	defer i.mu.Unlock()
	handlers := make([]cache.ResourceEventHandler, len(i.handlers))
	for n, r := range i.handlers {
		handlers[n] = r.handler
	}
	return handlers
}

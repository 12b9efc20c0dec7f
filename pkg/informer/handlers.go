package informer

import (
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/client-go/tools/cache"
)

// registration is one handler of an informer. Handlers are called synchronously, so a handler has seen the initial
// list as soon as the informer has handed it over.
type registration struct {
	handler cache.ResourceEventHandler
	// replay: the handler does not know what Config.Known holds, and is given it when the informer runs.
	replay bool
	// knows: it was given some of that before.
	knows bool
}

// Leaver is implemented by handlers that tell an object that left what is watched from one that was deleted. Others are given
// OnDelete.
type Leaver interface {
	// OnLeave is given the last state that was watched, and the one that is not: the same if what is watched has changed, and not
	// the object as far as is known.
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

// AddEventHandler adds h. If the informer knows objects already, h is first given each of them by OnAdd, as part of
// its initial list; it returns when that is done. What is in Config.Known it is taken to know. h must not call back into the informer's handler methods.
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

// AddEventHandlerWithReplay adds a handler that does not know the objects of Config.Known, before the informer runs: it is first
// given each of them, as its initial list; or with Config.Relist, each object that the list shows. With knows it may have been
// given some of them before, and is called for those that left, too.
func (i *Informer) AddEventHandlerWithReplay(h cache.ResourceEventHandler, knows bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, &registration{handler: h, replay: i.config.ResumeAt != "", knows: knows})
}

// replay gives new handlers what the others know. Where a list is to come that shows what is in the scope now, they wait for it: a state
// from before would be handed on behind a newer one, that an earlier process handed on.
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

// handReplay is replay, of the state at a resourceVersion. The caller holds mu.
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

// waits reports whether a handler is given everything by handReplay, which is still to come. The caller holds mu.
func (i *Informer) waits(r *registration) bool { return r.replay && !i.replayed }

// has reports whether a handler may have been given the known objects. The caller holds mu.
func (i *Informer) has(r *registration) bool {
	return !i.waits(r) || r.knows
}

// Handlers are those that were added, in the order in which they are called.
func (i *Informer) Handlers() []cache.ResourceEventHandler {
	i.mu.Lock()
	defer i.mu.Unlock()
	handlers := make([]cache.ResourceEventHandler, len(i.handlers))
	for n, r := range i.handlers {
		handlers[n] = r.handler
	}
	return handlers
}

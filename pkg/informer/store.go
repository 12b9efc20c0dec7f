package informer

import (
	"cmp"
	"slices"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// store is an Informer with the methods that the Reflector calls. One goroutine of the Reflector calls them in the
// order of the watch, and reads no more events until the call returns. The methods must not return errors that handlers
// cause, because the Reflector would only log them, and the change would be lost.
type store Informer

var (
	_ cache.ReflectorStore         = (*store)(nil)
	_ cache.ReflectorBookmarkStore = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

func (s *store) Add(obj any) error {
	i, o := (*Informer)(s), obj.(*object.Object)
	i.changes.Add(1)
	if !i.selects(o) {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.upsert(o, false)
	return nil
}

func (s *store) Update(obj any) error { return s.Add(obj) }

func (s *store) Delete(obj any) error {
	i, o := (*Informer)(s), obj.(*object.Object)
	i.changes.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.known(o)
	// If the object is not known, its deletion was already delivered, or the object belongs to another scope.
	if known != nil && known.UID == o.UID {
		o.InheritDecisions(known) // the sinks that received the object also receive its deletion
		i.remove(known, o, nil)
	}
	return nil
}

// Replace is called with a complete list. The Reflector does not call it for a list that failed or ended early.
func (s *store) Replace(list []any, resourceVersion string) error {
	i := (*Informer)(s)
	objects, others := i.selected(sorted(list))

	i.mu.Lock()
	defer i.mu.Unlock()
	if i.skip() || i.resumes(resourceVersion, len(list)) {
		return nil
	}
	first := i.first()
	switch {
	case first && !i.record.FirstList(objects, resourceVersion):
		return nil // the process is ending
	case i.config.Relist && !i.HasSynced() && !i.record.Entering(i.unknown(objects)):
		return nil // the process is ending
	case first:
		notify(i.handlers, func(l FirstLister) { l.OnFirstList(objects) })
	default:
		// The changes in a list have no position before the list ends. If a part of it was delivered, the next process would
		// deliver this part again, and would not know the objects that it added.
		i.relisting = i.HasSynced() || !i.config.Relist
		defer func() { i.relisting = false }()
		i.announceGap(resourceVersion)
	}
	i.deleteMissing(objects, others)
	for _, o := range objects {
		i.upsert(o, first)
	}
	i.handReplay(resourceVersion)
	if i.skipped {
		return nil // the next process delivers the rest
	}
	i.position = resourceVersion
	i.status.reached(resourceVersion) // after a watch-list the Reflector does not call UpdateResourceVersion
	i.resuming, i.resumed = i.resuming && i.history.hasListed(resourceVersion), nil
	i.record.Reached(resourceVersion)
	if first {
		notify(i.handlers, func(o Observer) { o.OnSynced(resourceVersion, len(objects)) })
	}
	notify(i.handlers, func(p Positioner) { p.OnPosition(resourceVersion) })
	i.fetcher.forget()
	i.synced.Store(true)
	if i.caughtUp() {
		i.notifyCaughtUp()
	}
	return nil
}

// unknown returns the objects whose names are not known yet. If a name is known, the row of the earlier object with
// this name is required until the deletion of that object is sent.
func (i *Informer) unknown(objects []*object.Object) []*object.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(o *object.Object) bool { return i.known(o) != nil })
}

// Resync implements cache.ReflectorStore. The Reflector does not call it, because it has no resync period.
func (s *store) Resync() error { return nil }

// Bookmark records that the API server sends bookmarks on this watch.
func (s *store) Bookmark(string) error {
	s.status.update(func(*Status) { s.status.bookmarks = true })
	return nil
}

// UpdateResourceVersion is called after each event, bookmark and list.
func (s *store) UpdateResourceVersion(resourceVersion string) {
	s.mu.Lock()
	if !s.skipped {
		if s.position != resourceVersion {
			s.position = resourceVersion
			s.record.Reached(resourceVersion)
		}
		notify(s.handlers, func(p Positioner) { p.OnPosition(resourceVersion) })
		s.resumed.reached()
		s.fetcher.forget()
	}
	s.mu.Unlock()
	s.status.reached(resourceVersion)
}

func (i *Informer) selects(o *object.Object) bool {
	return i.config.Select == nil || i.config.Select(o.Namespace)
}

// selected returns the selected objects of a list, and those that are known but not selected any more.
func (i *Informer) selected(list []*object.Object) (objects, others []*object.Object) {
	objects = slices.DeleteFunc(list, func(o *object.Object) bool {
		if i.selects(o) {
			return false
		}
		if i.known(o) != nil {
			others = append(others, o)
		}
		return true
	})
	return objects, others
}

// upsert stores o in the index and delivers the addition or update. The caller must hold mu.
func (i *Informer) upsert(o *object.Object, initial bool) {
	if i.skip() {
		return
	}
	known := i.known(o)
	if known != nil && known.UID != o.UID {
		i.take(known, unseen(known), nil) // skip is not checked again, because the addition must follow
		known = nil
	}
	if known != nil && known.ResourceVersion == o.ResourceVersion {
		return
	}
	e := i.enter(o)
	if known == nil {
		i.count.Add(1)
		if !initial { // the first list was already recorded as a whole
			i.record.Added(o.WithoutManagedFields())
		}
		for _, r := range i.handlers {
			if !r.waits {
				r.handler.OnAdd(o, initial)
			}
		}
	} else {
		i.record.Updated(o.WithoutManagedFields())
		for _, r := range i.handlers {
			if r.mayKnow() {
				r.handler.OnUpdate(known, o)
			}
		}
	}
	e.decide(o)
}

// remove deletes known from the index and reports this to the handlers that may know the object. last is its last
// state. If now is nil, the object was deleted. Otherwise it has left the scope, and now is its current state, or last
// if no newer state was seen. The caller must hold mu.
func (i *Informer) remove(known, last, now *object.Object) {
	if !i.skip() {
		i.take(known, last, now)
	}
}

// take is remove without the check whether the process is ending.
func (i *Informer) take(known, last, now *object.Object) {
	i.leave(known)
	i.count.Add(-1)
	i.record.Deleted(last)
	for _, r := range i.handlers {
		leaver, ok := r.handler.(Leaver)
		switch {
		case !r.mayKnow():
		case now != nil && ok:
			leaver.OnLeave(last, now)
		default:
			r.handler.OnDelete(last)
		}
	}
}

// deleteMissing reports each known object that is not in list, a complete list of the selected objects, as deleted or
// left. The object has left if it is in others, which contains the objects from the same response that are not
// selected, or if the new scope excludes it. Otherwise it was deleted.
func (i *Informer) deleteMissing(list, others []*object.Object) {
	if i.count.Load() == 0 || mutant.On("no-missed-deletions") {
		return
	}
	present := make(map[string]bool, len(list))
	for _, o := range slices.Concat(list, others) {
		present[o.Key()] = true
	}
	leavers := i.config.Relist && !i.HasSynced() && i.config.Within != nil
	for _, e := range i.entries() {
		if present[e.Key()] {
			continue
		}
		known := i.object(e)
		switch {
		case leavers && !i.config.Within(known):
			i.remove(known, known, known) // the list does not show whether it exists
		default:
			i.remove(known, unseen(known), nil)
		}
	}
	for _, now := range others {
		switch known := i.known(now); {
		case known == nil: // a list may contain an object twice
		case known.UID == now.UID:
			i.remove(known, known, now)
		default: // another object with the same name
			i.remove(known, unseen(known), nil)
		}
	}
}

// announceGap announces that states before to may be missing. The caller must hold mu.
func (i *Informer) announceGap(to string) {
	from := i.position
	why := "the watch could not be continued at resourceVersion " + from + ", and the resource was listed again"
	if i.config.Relist && !i.HasSynced() {
		why = "the `watch` configuration of the resource has changed since resourceVersion " + from +
			", so the resource was listed again"
	} else {
		i.status.update(func(s *Status) { s.Relists++ })
	}
	if from == to {
		return // nothing happened in between
	}
	log := i.log.With("from", from, "to", to)
	if order, err := resourceversion.CompareResourceVersion(to, from); err == nil && order < 0 {
		why = "the resourceVersion went backwards from " + from +
			", so the resource was listed again; was etcd restored from a backup?"
		log.Warn("the resourceVersion went backwards, so the resource was listed again; was etcd restored from a backup?")
	} else {
		log.Warn(
			"the watch could not be continued, so the resource was listed again; only intermediate states can be missing")
	}
	i.record.Gap(from, to)
	notify(i.handlers, func(o Observer) { o.OnGap(from, to, why) })
}

// unseen returns the last known state of an object whose deletion was missed, with FinalStateUnknown set.
func unseen(o *object.Object) *object.Object {
	last := *o
	last.FinalStateUnknown = true
	return &last
}

// sorted returns the objects of a list in resourceVersion order.
func sorted(list []any) []*object.Object {
	objects := make([]*object.Object, 0, len(list))
	for _, obj := range list {
		if o, ok := obj.(*object.Object); ok {
			objects = append(objects, o)
		}
	}
	sortByVersion(objects, func(o *object.Object) string { return o.ResourceVersion })
	return objects
}

// sortByVersion sorts states by their resourceVersions (KEP-5504). If the server's resourceVersions cannot be compared,
// the order does not change.
func sortByVersion[T any](states []T, version func(T) string) {
	slices.SortStableFunc(states, func(a, b T) int {
		order, err := resourceversion.CompareResourceVersion(version(a), version(b))
		if err != nil {
			return 0
		}
		return cmp.Compare(order, 0)
	})
}

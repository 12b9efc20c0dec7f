package informer

import (
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// entry is the index entry of an object. Nearly all memory of an informer is used by its entries.
type entry struct {
	object.Compact
	whole *object.Object // the object itself, if only the index has its bytes; otherwise nil
}

func newIndex() cache.Store {
	return cache.NewStore(func(e any) (string, error) { return e.(*entry).Key(), nil })
}

// enter stores o in the index. If the bytes of o cannot be fetched, the entry contains o without its managedFields.
func (i *Informer) enter(o *object.Object) *entry {
	e := &entry{Compact: o.Compact()}
	if !i.canFetch(o) {
		e.whole = o.WithoutManagedFields()
	}
	_ = i.index.Update(e) // the key function never fails
	return e
}

// canFetch reports whether the bytes of o can be fetched.
func (i *Informer) canFetch(o *object.Object) bool { return i.config.Record != nil && o.Name != "" }

// decide stores the decisions about o in its entry, after the handlers have been called with o.
func (e *entry) decide(o *object.Object) {
	if e.InheritDecisions(o); e.whole != nil {
		e.whole.InheritDecisions(o)
	}
}

// object returns the object of an entry.
func (i *Informer) object(e *entry) *object.Object {
	if e.whole != nil {
		return e.whole
	}
	return e.Object(&i.fetcher)
}

// entries returns all entries, in resourceVersion order.
func (i *Informer) entries() []*entry {
	list := i.index.List()
	entries := make([]*entry, len(list))
	for n, e := range list {
		entries[n] = e.(*entry)
	}
	sortByVersion(entries, (*entry).ResourceVersion)
	return entries
}

// Objects returns all known objects, in resourceVersion order. A successor can use them as Config.Known. It may be
// called at any time. The index is ahead of the handlers by at most the change that is being delivered.
func (i *Informer) Objects() []*object.Object {
	entries := i.entries()
	objects := make([]*object.Object, len(entries))
	for n, e := range entries {
		objects[n] = i.object(e)
	}
	return objects
}

// Known returns the known object with this key (object.Identity.Key), or nil. It may be called at any time, like
// Objects.
func (i *Informer) Known(key string) *object.Object {
	e, exists, err := i.index.GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	return i.object(e.(*entry))
}

// known returns the object in the index that has the same namespace and name as o, or nil.
func (i *Informer) known(o *object.Object) *object.Object { return i.Known(o.Key()) }

// leave removes an object from the index.
func (i *Informer) leave(known *object.Object) {
	if e, exists, err := i.index.GetByKey(known.Key()); err == nil && exists {
		_ = i.index.Delete(e) // the key function never fails
	}
}

package informer

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/watch"
)

// Bodies keeps the bytes of an informer's objects, so that the index holds identities only: bytes are needed again for
// the last known state of an object whose deletion was not seen, and where a filter or a payload asks for the old state.
type Bodies interface {
	object.Keeper
	// Stage begins to take the objects of a first list, while it is read. What was staged before is dropped: a list that
	// breaks is begun again. Nil: nothing is taken, and the list stays in memory.
	Stage() Stage
}

// Stage takes objects of a first list. Record.FirstList follows when the list is complete.
type Stage interface {
	// Put keeps an object's bytes. It may wait for the disk. After an error the object was not taken, and Put is called
	// again.
	Put(o *object.Object) error
	// Remove drops an object that was put: it was deleted while the list was read. Errors are as of Put.
	Remove(o *object.Object) error
}

// stageRetry is how long a list waits before it is tried again to keep an object.
const stageRetry = time.Second

// fetcher gives the bytes of known objects, which the record keeps. It remembers those of one object until the change was handed
// over: each handler may ask for them, and then nobody does.
type fetcher struct {
	record Record
	mu     sync.Mutex
	last   object.Identity
	raw    []byte // nil: none are remembered
}

// Fetch implements object.Keeper.
func (f *fetcher) Fetch(o *object.Object) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.raw != nil && f.last == o.Identity {
		return f.raw, nil
	}
	raw, err := f.record.Fetch(o)
	f.last, f.raw = o.Identity, raw
	return raw, err
}

func (f *fetcher) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.raw = object.Identity{}, nil
}

// EachFunc is given each object of a list while the list is read, and returns what stands for it from then on.
type EachFunc func(eventType watch.EventType, o *object.Object) (*object.Object, error)

// beginList gives what each object of a list is passed through while the list is read; nil if nothing is to be done. It
// releases the bytes that are kept elsewhere, so that a list of any length takes little memory.
func (i *Informer) beginList(ctx context.Context) EachFunc {
	if i.config.Record == nil || ctx.Err() != nil { // a request that was given up must not begin a list over that of a successor
		return nil
	}
	var stage Stage
	if i.beginsWithList() {
		stage = i.record.Stage()
	}
	return func(eventType watch.EventType, o *object.Object) (*object.Object, error) {
		switch {
		case !i.selects(o):
			if stage != nil && eventType != watch.Added && o.Name != "" { // it may have been selected, and kept
				if err := i.stage(ctx, stage, watch.Deleted, o); err != nil {
					return nil, err
				}
			}
			return &object.Object{Identity: o.Identity}, nil // it is dropped when the list is complete
		case stage != nil && o.Name != "": // nobody could ask for one without a name again
			if err := i.stage(ctx, stage, eventType, o); err != nil {
				return nil, err
			}
			return i.indexed(o), nil
		default:
			if known := i.known(o); known != nil && known.UID == o.UID && known.ResourceVersion == o.ResourceVersion {
				o = i.indexed(o)
			}
			return o, nil
		}
	}
}

// stage keeps an object of a first list. Where that fails, the disk is full, say, it tries again until ctx ends: the list
// waits, and with it the API server.
func (i *Informer) stage(ctx context.Context, stage Stage, eventType watch.EventType, o *object.Object) error {
	for failed := false; ; failed = true {
		var err error
		if eventType == watch.Deleted {
			err = stage.Remove(o)
		} else {
			err = stage.Put(o)
		}
		if err == nil {
			if failed {
				i.status.requested(verbList, nil)
				i.log.Info("first list goes on")
			}
			return nil
		}
		if i.status.requested(verbList, err) || !failed {
			i.log.Warn("first list can't be stored and waits", "err", err)
		}
		if pause(ctx, stageRetry); ctx.Err() != nil {
			return err
		}
	}
}

// beginsWithList reports whether the next list is the first that the handlers are given.
func (i *Informer) beginsWithList() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.first()
}

// first reports whether the handlers know nothing yet. The caller holds mu.
func (i *Informer) first() bool { return i.position == "" && !i.HasSynced() }

// indexed is what the index is to hold of an object.
func (i *Informer) indexed(o *object.Object) *object.Object {
	if i.config.Record == nil || o.Name == "" {
		return o.WithoutManagedFields()
	}
	if o.IsReleased() {
		return o
	}
	return o.Released(&i.fetcher)
}

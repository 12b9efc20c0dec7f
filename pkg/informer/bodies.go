package informer

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/watch"
)

// Bodies stores the bytes of an informer's objects, so that the index holds identities only. The bytes are fetched for
// the last known state of an object whose deletion was not seen, and for filters and payloads that use the old state.
type Bodies interface {
	object.Keeper
	// Stage begins to store the objects of a first list while the list is read. It drops what was staged before,
	// because a broken list begins again. If it returns nil, the list stays in memory.
	Stage() Stage
}

// Stage stores the objects of a first list. Record.FirstList is called when the list is complete.
type Stage interface {
	// Put stores an object's bytes. It may wait for the disk. After an error the object is not stored, and Put is
	// called again.
	Put(o *object.Object) error
	// Remove drops an object that was put, because it was deleted while the list was read. After an error it is called
	// again.
	Remove(o *object.Object) error
}

// stageRetry is the time between attempts to stage an object.
const stageRetry = time.Second

// fetcher fetches the bytes of known objects from the record. It remembers the bytes of one object until the change is
// handed over, because each handler may ask for them.
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

// EachFunc is given each object of a list while the list is read, and returns the object to use instead.
type EachFunc func(eventType watch.EventType, o *object.Object) (*object.Object, error)

// beginList implements ListerWatcher.BeginList. The function that it returns releases the bytes that are stored
// elsewhere, so that a list of any length takes little memory.
func (i *Informer) beginList(ctx context.Context) EachFunc {
	if i.config.Record == nil || ctx.Err() != nil { // a request that has ended must not begin a list over a later one
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

// stage stores or removes an object of a first list. If that fails, for example because the disk is full, it retries
// until ctx ends. The list waits meanwhile, and so does the API server.
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
				i.log.Info("the first list is stored again")
			}
			return nil
		}
		if i.status.requested(verbList, err) || !failed {
			i.log.Warn("cannot store the first list, retrying", "err", err)
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

// indexed returns the object that the index holds for o.
func (i *Informer) indexed(o *object.Object) *object.Object {
	if i.config.Record == nil || o.Name == "" {
		return o.WithoutManagedFields()
	}
	if o.IsReleased() {
		return o
	}
	return o.Released(&i.fetcher)
}

package informer

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/watch"
)

// Stage stores the objects of a first list while the list is being read. When the list is complete, Record.FirstList is
// called.
type Stage interface {
	// Put stores an object's bytes. It may wait for the disk. If it returns an error, the object is not stored, and the
	// caller calls Put again.
	Put(o *object.Object) error
	// Remove drops a stored object that was deleted while the list was being read. If it returns an error, the caller
	// calls Remove again.
	Remove(o *object.Object) error
}

// stageRetry is the time between attempts to stage an object.
const stageRetry = time.Second

// fetcher fetches the bytes of known objects from the record. It remembers the bytes of one object until the change is
// delivered, because every handler may request them.
type fetcher struct {
	record Record
	mu     sync.Mutex
	last   object.Identity
	raw    []byte // nil if no bytes are remembered
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

// EachFunc is called with each object of a list while the list is being read. It returns the object that replaces the
// original in the list.
type EachFunc func(eventType watch.EventType, o *object.Object) (*object.Object, error)

// beginList implements ListerWatcher.BeginList. The function that it returns releases the bytes that are stored
// elsewhere, so even a long list uses little memory.
func (i *Informer) beginList(ctx context.Context) EachFunc {
	if i.config.Record == nil || ctx.Err() != nil { // a request that has ended must not discard the stage of a later one
		return nil
	}
	var stage Stage
	if i.beginsWithList() {
		stage = i.record.Stage()
	}
	return func(eventType watch.EventType, o *object.Object) (*object.Object, error) {
		switch {
		case !i.selects(o):
			return &object.Object{Identity: o.Identity}, nil // Replace drops the object when the list is complete
		case stage != nil && o.Name != "": // an object without a name could not be fetched later
			if err := i.stage(ctx, stage, eventType, o); err != nil {
				return nil, err
			}
			return i.released(o), nil
		default:
			if known := i.known(o); known != nil && known.UID == o.UID && known.ResourceVersion == o.ResourceVersion {
				o = i.released(o)
			}
			return o, nil
		}
	}
}

// stage stores or removes an object of a first list. If that fails, for example because the disk is full, it retries
// until ctx ends. While it retries, neither the list nor the connection to the API server makes progress.
func (i *Informer) stage(ctx context.Context, stage Stage, eventType watch.EventType, o *object.Object) error {
	store := stage.Put
	if eventType == watch.Deleted {
		store = stage.Remove
	}
	for failed := false; ; failed = true {
		err := store(o)
		if err == nil && !failed {
			return nil
		}
		i.note(ctx, verbList, err)
		if err == nil {
			return nil
		}
		if !pause.For(ctx, stageRetry) {
			return err
		}
	}
}

// beginsWithList reports whether the next list is the first one that the handlers receive.
func (i *Informer) beginsWithList() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.first()
}

// first reports whether the next list is the first that the handlers receive. The caller must hold mu.
func (i *Informer) first() bool { return i.position == "" && !i.HasSynced() }

// released returns o without its bytes, which can be fetched. If they cannot, it returns o without its managedFields.
func (i *Informer) released(o *object.Object) *object.Object {
	switch {
	case !i.canFetch(o):
		return o.WithoutManagedFields()
	case o.IsReleased():
		return o
	}
	return o.Released(&i.fetcher)
}

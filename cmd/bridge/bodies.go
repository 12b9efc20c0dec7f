package main

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// bodies gives an informer the bytes of its objects back, so that its index holds identities only: what is not written
// yet is in the ledger, all else in the store.
type bodies struct {
	checkpoint *checkpointer
	source     informer.Source
}

var _ informer.Bodies = bodies{}

func (c *checkpointer) bodies(source informer.Source) informer.Bodies { return bodies{c, source} }

// Fetch implements object.Keeper.
func (b bodies) Fetch(o *object.Object) ([]byte, error) {
	key := checkpoint.Key(o)
	if l := b.checkpoint.ledger(b.source.Name); l != nil {
		if found := l.Find(key, o.Identity); found != nil {
			return found.Raw, nil
		}
	}
	return b.checkpoint.store.Fetch(b.source.Name, key, o.Identity)
}

// Stage implements informer.Bodies.
func (b bodies) Stage() informer.Stage {
	l := b.checkpoint.ledger(b.source.Name)
	if l == nil || l.Begun() {
		return nil
	}
	stage := b.checkpoint.store.Stage(checkpoint.Source(b.source))
	b.checkpoint.mu.Lock()
	defer b.checkpoint.mu.Unlock()
	b.checkpoint.stages[b.source.Name] = stage
	return stage
}

// firstList stores the first list of a source before any of it is handed over: from then on a deletion can't be missed.
// The objects' bytes were staged while the list was read. It waits until the store takes it; false if ctx ended first.
func (c *checkpointer) firstList(ctx context.Context, source informer.Source, objects []*object.Object, resourceVersion string) bool {
	l := c.ledger(source.Name)
	if l.Begun() { // its resource went and came again
		for _, o := range objects {
			l.Note(checkpoint.Key(o), o)
		}
		return true
	}
	c.mu.Lock()
	stage := c.stages[source.Name]
	delete(c.stages, source.Name)
	c.mu.Unlock()
	if stage == nil { // the list was not staged, so that the objects have their bytes
		stage = c.store.Stage(checkpoint.Source(source))
	} else {
		objects = nil
	}
	update := checkpoint.Update{Source: checkpoint.Source(source), ResourceVersion: resourceVersion}
	for {
		err := c.finish(stage, objects, update)
		c.report(err)
		if err == nil {
			l.Begin(resourceVersion)
			return true
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// finish stores a first list: the objects, and what the stage has taken before.
func (c *checkpointer) finish(stage *checkpoint.Stage, objects []*object.Object, update checkpoint.Update) error {
	for _, o := range objects {
		if err := stage.Put(o); err != nil {
			return err
		}
	}
	return stage.Finish(update, c.storedFilters())
}

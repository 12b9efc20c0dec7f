package engine

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
	engine *Engine
	source informer.Source
}

var _ informer.Bodies = bodies{}

// Bodies keeps the bytes of a source's objects for its informer.
func (e *Engine) Bodies(source informer.Source) informer.Bodies { return bodies{e, source} }

// Fetch implements object.Keeper.
func (b bodies) Fetch(o *object.Object) ([]byte, error) {
	key := checkpoint.Key(o)
	if l := b.engine.Ledger(b.source.Name); l != nil {
		if found := l.Find(key, o.Identity); found != nil {
			return found.Raw, nil
		}
	}
	return b.engine.store.Fetch(b.source.Name, key, o.Identity)
}

// Stage implements informer.Bodies.
func (b bodies) Stage() informer.Stage {
	l := b.engine.Ledger(b.source.Name)
	if l == nil || l.Begun() {
		return nil
	}
	stage := b.engine.store.Stage(checkpoint.Source(b.source))
	b.engine.mu.Lock()
	defer b.engine.mu.Unlock()
	b.engine.sources[b.source.Name].stage = stage
	return stage
}

// FirstList stores the first list of a source before any of it is handed over: from then on a deletion can't be missed.
// The objects' bytes were staged while the list was read. It waits until the store takes it; false if ctx ended first.
func (e *Engine) FirstList(ctx context.Context, source informer.Source, objects []*object.Object, resourceVersion string) bool {
	l := e.Ledger(source.Name)
	if l.Begun() { // its resource went and came again
		for _, o := range objects {
			l.Add(checkpoint.Key(o), o)
		}
		return true
	}
	stage := e.takeStage(source.Name)
	if stage == nil { // the list was not staged, so that the objects have their bytes
		stage = e.store.Stage(checkpoint.Source(source))
	} else {
		objects = nil
	}
	update := checkpoint.Update{Source: checkpoint.Source(source), ResourceVersion: resourceVersion, Sinks: map[string]string{}}
	for _, sink := range e.sinks {
		update.Sinks[sink] = "" // it is given a part now
	}
	for {
		err := e.finish(stage, objects, update)
		e.report(err)
		if err == nil {
			l.Begin(resourceVersion)
			return true
		}
		if !pause(ctx, retryInterval) {
			return false
		}
	}
}

func (e *Engine) takeStage(source string) *checkpoint.Stage {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sources[source]
	if s == nil {
		return nil
	}
	stage := s.stage
	s.stage = nil
	return stage
}

// finish stores a first list: the objects, and what the stage has taken before.
func (e *Engine) finish(stage *checkpoint.Stage, objects []*object.Object, update checkpoint.Update) error {
	for _, o := range objects {
		if err := stage.Put(o); err != nil {
			return err
		}
	}
	return stage.Finish(update, e.filters)
}

// retryInterval is how long the engine waits before it asks the API server, or the disk, again.
const retryInterval = time.Second

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

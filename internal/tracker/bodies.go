package tracker

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Fetch implements object.Keeper. What is not written yet is in the ledger, all else in the store.
func (r record) Fetch(o *object.Object) ([]byte, error) {
	key := o.Key()
	if found := r.ledger.Find(key, o.Identity); found != nil {
		return found.Raw, nil
	}
	return r.tracker.store.Fetch(r.source.Name, key, o.Identity)
}

// Stage implements informer.Bodies.
func (r record) Stage() informer.Stage {
	if r.ledger.Begun() {
		return nil
	}
	stage := r.tracker.store.Stage(ledger.Source(r.source))
	r.tracker.mu.Lock()
	defer r.tracker.mu.Unlock()
	r.tracker.sources[r.source.Name].stage = stage
	return stage
}

// FirstList implements informer.Record. The objects' bytes were staged while the list was read. From then on a
// deletion can't be missed. It waits until the store takes the list.
func (r record) FirstList(objects []*object.Object, resourceVersion string) bool {
	t := r.tracker
	if r.ledger.Begun() { // its resource went and came again
		for _, o := range objects {
			r.ledger.AddRow(o.Key(), o)
		}
		return true
	}
	stage := t.takeStage(r.source.Name)
	if stage == nil { // the list was not staged, so that the objects have their bytes
		stage = t.store.Stage(ledger.Source(r.source))
	} else {
		objects = nil
	}
	update := ledger.Update{Source: ledger.Source(r.source), ResourceVersion: resourceVersion, Sinks: map[string]string{}}
	for _, sink := range t.sinks {
		update.Sinks[sink] = "" // it is given a part now
	}
	for {
		err := t.finish(stage, objects, update)
		t.report(err)
		if err == nil {
			r.ledger.Begin(resourceVersion)
			return true
		}
		if !pause(t.reading, retryInterval) {
			return false
		}
	}
}

func (t *Tracker) takeStage(source string) Stage {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sources[source]
	if s == nil {
		return nil
	}
	stage := s.stage
	s.stage = nil
	return stage
}

// finish stores a first list: the objects, and what the stage has taken before.
func (t *Tracker) finish(stage Stage, objects []*object.Object, update ledger.Update) error {
	for _, o := range objects {
		if err := stage.Put(o); err != nil {
			return err
		}
	}
	return stage.Finish(update, t.filters)
}

// retryInterval is how long the tracker waits before it asks the API server, or the disk, again.
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

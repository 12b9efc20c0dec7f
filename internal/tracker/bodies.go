package tracker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Fetch implements object.Keeper. A state that is not written yet is in the ledger, all others are in the store.
func (r record) Fetch(o *object.Object) ([]byte, error) {
	key := o.Key()
	if found := r.ledger.Find(key, o.Identity); found != nil {
		return found.Raw, nil
	}
	return r.tracker.store.Fetch(r.source.Name, key, o.Identity)
}

// partBytes is how much of a list is held in memory before it is written, in bytes of objects.
const partBytes = 4 << 20

// errSuperseded is returned to a stage after another one was begun for its source.
var errSuperseded = errors.New("the list was begun again")

// stage stores a first list in parts while it is read, so that a list of any length takes little memory. Until
// FirstList, the source has rows but no watermark, and the rows do not count.
type stage struct {
	record
	part  []*object.Object // not written yet
	bytes int              // of part
	begun bool             // something was written

	mu         sync.Mutex // held while writing
	superseded bool
}

// Stage implements informer.Bodies.
func (r record) Stage() informer.Stage {
	if r.ledger.Begun() {
		return nil
	}
	return r.newStage()
}

// newStage begins a list. A stage that was begun before writes nothing more.
func (r record) newStage() *stage {
	s := &stage{record: r}
	if before := r.tracker.swapStage(r.source.Name, s); before != nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		before.superseded = true
	}
	return s
}

func (t *Tracker) swapStage(source string, s *stage) (before *stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.sources[source]
	before, of.stage = of.stage, s
	return before
}

// Put implements informer.Stage.
func (s *stage) Put(o *object.Object) error {
	if s.bytes >= partBytes {
		if err := s.write(); err != nil {
			return err
		}
	}
	s.part, s.bytes = append(s.part, o.WithoutManagedFields()), s.bytes+len(o.Raw)
	return nil
}

// Remove implements informer.Stage.
func (s *stage) Remove(o *object.Object) error {
	return s.write(ledger.Update{State: ledger.State{Source: ledger.Source(s.source)}, Deletes: []string{o.Key()}})
}

// write stores what was put, and then more, in one transaction.
func (s *stage) write(more ...ledger.Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.superseded {
		return errSuperseded
	}
	part := ledger.Update{State: ledger.State{Source: ledger.Source(s.source)}, ReplaceRows: !s.begun, Upserts: s.part}
	if err := s.tracker.store.Commit(append([]ledger.Update{part}, more...), s.tracker.filters); err != nil {
		return err
	}
	s.part, s.bytes, s.begun = nil, 0, true
	return nil
}

// FirstList implements informer.Record. The objects' bytes were staged while the list was read. From then on a
// deletion cannot be missed. It waits until the store takes the list.
func (r record) FirstList(objects []*object.Object, resourceVersion string) bool {
	if r.ledger.Begun() { // the resource was removed and came back
		for _, o := range objects {
			r.ledger.AddRow(o.Key(), o)
		}
		return true
	}
	t := r.tracker
	s := t.swapStage(r.source.Name, nil)
	if s == nil { // the list was not staged, so that the objects have their bytes
		s = r.newStage()
		for _, o := range objects {
			if !t.retry(func() error { return s.Put(o) }) {
				return false
			}
		}
	}
	state := ledger.State{Source: ledger.Source(r.source), ResourceVersion: resourceVersion, Sinks: map[string]string{}}
	for _, sink := range t.sinks {
		state.Sinks[sink] = "" // it is sent a part now
	}
	if !t.retry(func() error { return s.write(ledger.Update{State: state}) }) {
		return false
	}
	r.ledger.Begin(resourceVersion)
	return true
}

// retryInterval is how long the tracker waits before it asks the API server, or the disk, again.
const retryInterval = time.Second

// retry calls write until it succeeds, and reports the outcome. It returns false if reading ended first.
func (t *Tracker) retry(write func() error) bool {
	for {
		err := write()
		t.report(err)
		if err == nil {
			return true
		}
		if !pause(t.reading, retryInterval) {
			return false
		}
	}
}

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

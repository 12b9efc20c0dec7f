package tracker

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Fetch implements object.Keeper. It reads a state from the ledger if the state is not committed yet, otherwise from
// the store.
func (s *source) Fetch(o *object.Object) ([]byte, error) {
	key := o.Key()
	if found := s.ledger.Find(key, o.Identity); found != nil {
		return found.Raw, nil
	}
	return s.tracker.store.Fetch(s.state.Source.Name, key, o.Identity)
}

// partBytes is the number of object bytes of a list that are kept in memory before they are written.
const partBytes = 4 << 20

// errSuperseded is returned by a stage after a newer stage was started for the same source.
var errSuperseded = errors.New("a newer list of the source has started")

// stage stores an initial list in parts while the list is read, so a list of any length requires little memory. Until
// FirstList is called, the source has rows but no watermark, and these rows are ignored after a restart.
type stage struct {
	*source

	part  []*object.Object // objects that are not written yet
	bytes int              // size of the objects in part
	begun bool             // whether this stage has written something
}

// Stage implements informer.Record.
func (s *source) Stage() informer.Stage {
	if s.ledger.Begun() {
		return nil
	}
	return s.newStage()
}

// newStage starts a new stage. The previous stage of the source, if there is one, writes nothing more.
func (s *source) newStage() *stage {
	s.tracker.staging.Lock()
	defer s.tracker.staging.Unlock()
	s.stage = &stage{source: s}
	return s.stage
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
	return s.write(ledger.Update{State: ledger.State{Source: s.state.Source}, Deletes: []string{o.Key()}})
}

// write commits the objects that Put collected, followed by the updates in more, in one transaction.
func (s *stage) write(more ...ledger.Update) error {
	s.tracker.staging.Lock()
	defer s.tracker.staging.Unlock()
	if s.source.stage != s {
		return errSuperseded
	}
	part := ledger.Update{State: ledger.State{Source: s.state.Source}, ReplaceRows: !s.begun, Upserts: s.part}
	if err := s.tracker.store.Commit(append([]ledger.Update{part}, more...), s.tracker.currentFilters(), nil); err != nil {
		return err
	}
	s.part, s.bytes, s.begun = nil, 0, true
	return nil
}

// FirstList implements informer.Record. The bytes of the objects were staged while the list was read. After FirstList
// the store contains the whole list, so no later deletion can be missed. FirstList waits until the store has committed
// the list.
func (s *source) FirstList(objects []*object.Object, resourceVersion string) bool {
	if s.ledger.Begun() { // the resource was removed and added again
		for _, o := range objects {
			s.ledger.AddRow(o.Key(), o)
		}
		return true
	}
	t := s.tracker
	t.staging.Lock()
	list := s.stage
	t.staging.Unlock()
	if list == nil { // the list was not staged, so the objects still have their bytes
		list = s.newStage()
		for _, o := range objects {
			if !t.retry(func() error { return list.Put(o) }) {
				return false
			}
		}
	}
	state := ledger.State{
		Source: s.state.Source, ResourceVersion: resourceVersion, Sinks: map[string]string{}, History: s.state.History,
	}
	for _, sink := range t.sinks {
		state.Sinks[sink] = "" // the sink is sent a part of the list from now on
	}
	write := func(state ledger.State) error { return list.write(ledger.Update{State: state}) }
	if !t.retry(func() error { return s.withRefilters(state, write) }) {
		return false
	}
	s.ledger.Begin(resourceVersion)
	return true
}

// retryInterval is the interval between retries when a commit fails.
const retryInterval = time.Second

// retry calls write until it succeeds, and reports every result. It returns false if Options.Reading ends first.
func (t *Tracker) retry(write func() error) bool {
	return wait.PollUntilContextCancel(t.reading, retryInterval, true, func(context.Context) (bool, error) {
		err := write()
		t.report(err)
		return err == nil, nil
	}) == nil
}

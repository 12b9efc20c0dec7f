package tracker

import (
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Record implements informer.State.
func (t *Tracker) Record(of informer.Source) informer.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sources[of.Name]
}

// Entering implements informer.Record. It stores objects before they are sent to any sink, and waits until the store
// has committed them. If the process were killed after an object was sent but before it was stored, the next process
// would list again without knowing the object. It could then not notice that the object was deleted.
func (s *source) Entering(objects []*object.Object) bool {
	t := s.tracker
	for len(objects) > 0 {
		n := 0
		for size := 0; n < len(objects) && size < partBytes; n++ {
			size += len(objects[n].Raw)
		}
		write := func(state ledger.State) error {
			return t.store.Commit([]ledger.Update{{State: state, Upserts: objects[:n]}}, t.currentFilters(), nil)
		}
		if !t.retry(func() error { return s.withRefilters(s.state, write) }) {
			return false
		}
		objects = objects[n:]
	}
	return true
}

// Added implements informer.Record.
func (s *source) Added(o *object.Object) { s.ledger.AddRow(o.Key(), o) }

// Updated implements informer.Record.
func (s *source) Updated(o *object.Object) { s.ledger.SetRow(o.Key(), o) }

// Deleted implements informer.Record.
func (s *source) Deleted(o *object.Object) { s.ledger.SetRow(o.Key(), nil) }

// Reached implements informer.Record. It waits while the ledgers exceed their bound (see makeRoom).
func (s *source) Reached(resourceVersion string) {
	s.ledger.Advance(resourceVersion)
	s.tracker.makeRoom(s.tracker.reading, s.ledger)
}

// Gap implements informer.Record.
func (s *source) Gap(from, to string) {
	if WentBack(from, to) {
		s.ledger.StartOver(to)
	}
}

// WentBack reports whether a list is older than the states that were read before it. This happens if etcd was restored
// to an earlier revision: resourceVersions then continue from this earlier revision.
func WentBack(from, to string) bool {
	return to != "" && from != to && ledger.Later(from, to) == from
}

// Past reports whether a position has reached a floor. An empty floor is always reached. If the two cannot be compared,
// the floor counts as reached, because it is better to send a change twice than never.
func Past(floor, position string) bool {
	if floor == "" || position == "" {
		return floor == ""
	}
	order, err := resourceversion.CompareResourceVersion(position, floor)
	return err != nil || order >= 0
}

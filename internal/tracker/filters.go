package tracker

import (
	"maps"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// currentFilters returns the filters of all sinks. The map must not be changed.
func (t *Tracker) currentFilters() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.filters
}

// StoredFilter returns the last filter of a sink that was committed, perhaps by an earlier process. It is empty if
// there is none.
func (t *Tracker) StoredFilter(sink string) string { return t.store.SinkConfig(sink) }

// SetFilter sets the filter of a sink, in place of Sink.Filter. It must be called before Identify.
func (t *Tracker) SetFilter(sink, filter string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filters = maps.Clone(t.filters)
	t.filters[sink] = filter
}

// ChangeFilter changes the filter of a sink while sources are read. It returns when the store has committed that the
// sink may be sent events by both filters, or false if Options.Reading ends before. For each source for which affects
// returns true, the sink must then be sent the difference, and Ledger.FinishRefilter must be called.
func (t *Tracker) ChangeFilter(sink, filter string, affects func(informer.Source) bool) bool {
	t.resuming.Lock()
	defer t.resuming.Unlock()
	t.beginRefilters(sink, filter, affects)
	return t.retry(func() error {
		if err := t.Commit(); err != nil {
			return err
		}
		// Commit writes nothing if there are no sources.
		if err := t.store.Commit(nil, t.currentFilters(), nil); err != nil {
			return err
		}
		return t.reloadRemembered()
	})
}

// reloadRemembered reads the states of the sources that are not resumed, in which the store has recorded the change.
func (t *Tracker) reloadRemembered() error {
	states, err := t.store.States()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, state := range states {
		if s := t.sources[state.Source.Name]; s != nil && s.ledger == nil {
			s.state = state
		}
	}
	return nil
}

// withRefilters calls write with the state of the source and the earlier filters of its sinks, which do not change
// until write returns. A filter can have changed since the source was resumed.
func (s *source) withRefilters(state ledger.State, write func(ledger.State) error) error {
	s.tracker.resuming.Lock()
	defer s.tracker.resuming.Unlock()
	state.Refilters = map[string]ledger.Refilter{}
	for _, sink := range s.tracker.sinks {
		if r := s.ledger.Refilter(sink); len(r.Filters) > 0 {
			state.Refilters[sink] = r
		}
	}
	return write(state)
}

// beginRefilters records the change in all ledgers. No commit can contain only a part of it.
func (t *Tracker) beginRefilters(sink, filter string, affects func(informer.Source) bool) {
	t.committing.Lock()
	defer t.committing.Unlock()
	earlier, change := t.currentFilters()[sink], checkpoint.NewChange()
	for _, l := range t.ledgers() {
		if affects(l.Source()) {
			l.BeginRefilter(sink, earlier, change)
		} else {
			l.Unwritten() // otherwise the store would record that this source is affected
		}
	}
	t.SetFilter(sink, filter)
}

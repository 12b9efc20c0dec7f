package tracker

import (
	"maps"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// TakeOver implements informer.State: it moves shares of remembered sources to another source, which is resumed next.
// It is called after `watch` was changed, so the objects stay known. It waits until the store has committed the move.
func (t *Tracker) TakeOver(into informer.Source, shares []informer.Share) {
	state, rows := t.join(into, t.dropTaken(into.Name, shares))
	if len(rows) == 0 {
		return
	}
	if !t.retry(func() error { return t.store.TakeOver(state, rows) }) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[into.Name] = &source{state: state}
}

// dropTaken removes the shares that have no rows if the source that takes over is already known. In this case a
// previous process moved the rows, and ended before it removed the source that the rows came from.
func (t *Tracker) dropTaken(into string, shares []informer.Share) []informer.Share {
	t.mu.Lock()
	s := t.sources[into]
	t.mu.Unlock()
	if s == nil || s.state.ResourceVersion == "" {
		return shares
	}
	return slices.DeleteFunc(slices.Clone(shares), func(share informer.Share) bool {
		has, err := t.store.Has(share.Source, keysIn(share))
		return err == nil && !has
	})
}

// keysIn returns a function that reports whether a row key belongs to a share.
func keysIn(share informer.Share) func(key string) bool {
	return func(key string) bool {
		namespace, _, namespaced := strings.Cut(key, "/")
		if !namespaced {
			namespace = ""
		}
		return share.In(namespace)
	}
}

// join returns the state of a source that takes over other sources. Its watermark is the lowest watermark of these
// sources. The same applies to the watermark of each sink that knows all of them. A sink that knows only some of them
// is sent an initial list again.
func (t *Tracker) join(into informer.Source, shares []informer.Share) (state ledger.State, rows []ledger.Share) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(name string) bool {
		s := t.sources[name]
		if s == nil || s.state.ResourceVersion == "" || s.ledger != nil {
			return false
		}
		other := s.state
		other.Sinks, other.Refilters = withSpilled(&other, t.queues.Spilled(name)), maps.Clone(other.Refilters)
		if changing := strings.HasPrefix(other.Source.Scope, changingTo); changing && name == into.Name {
			into.Scope = other.Source.Scope // Resume compares this scope with the new one
		} else if changing {
			beginAgain(other.Sinks)
		}
		if state.ResourceVersion == "" {
			state = other
			return true
		}
		state.ResourceVersion = earlier(state.ResourceVersion, other.ResourceVersion)
		for _, sink := range t.sinks {
			t.joinRefilters(sink, &state, &other)
			a, inOne := state.Sinks[sink]
			b, inOther := other.Sinks[sink]
			switch {
			case a != "" && b != "":
				state.Sinks[sink] = earlier(a, b)
			case inOne || inOther:
				state.Sinks[sink] = ""
			}
		}
		return true
	}
	if s := t.sources[into.Name]; s != nil && s.ledger != nil {
		return state, nil // the source was resumed and keeps its own state
	}
	add(into.Name)
	for _, share := range shares {
		if add(share.Source) {
			rows = append(rows, ledger.Share{Source: share.Source, Has: keysIn(share)})
		}
	}
	state.Source = ledger.Source(into)
	return state, rows
}

// joinRefilters adds to a state the filters through which a sink may know another source. If one of the two has no
// Refilter, the sink may know that source through its current filter, which is then added.
func (t *Tracker) joinRefilters(sink string, state, other *ledger.State) {
	a, inOne := state.Refilters[sink]
	b, inOther := other.Refilters[sink]
	if !inOne && !inOther {
		return
	}
	both := ledger.Refilter{Filters: slices.Concat(a.Filters, b.Filters), Change: max(a.Change, b.Change)}
	if !inOne || !inOther {
		both.Filters = append(both.Filters, t.filters[sink])
	}
	slices.Sort(both.Filters)
	both.Filters = slices.Compact(both.Filters)
	if state.Refilters == nil {
		state.Refilters = map[string]ledger.Refilter{}
	}
	state.Refilters[sink] = both
}

// earlier returns the earlier of two resourceVersions of one resource. Both must be non-empty.
func earlier(a, b string) string {
	if later(a, b) == a {
		return b
	}
	return a
}

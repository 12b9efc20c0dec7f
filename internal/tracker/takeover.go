package tracker

import (
	"maps"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// TakeOver implements informer.State: it moves shares of remembered sources to another source, which is resumed next.
// It is called after `watch` was changed, so the objects stay known. It waits until the store has committed the move.
// If rows cannot be read, it removes the source that takes over, which is then listed as a new source.
func (t *Tracker) TakeOver(into informer.Source, shares []informer.Share) {
	t.resuming.Lock()
	defer t.resuming.Unlock()
	state, shares := t.join(into, t.dropTaken(into.Name, shares))
	if len(shares) == 0 {
		return
	}
	err := t.move(state, shares)
	if err != nil {
		t.log.Error("cannot read the rows of a source in the checkpoint; its objects are listed again",
			"source", into.Name, "err", err)
		t.retry(func() error { return t.store.Forget(into.Name) })
	}
	if t.reading.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		delete(t.sources, into.Name)
	} else {
		t.sources[into.Name] = &source{state: state}
	}
}

// move moves the rows of shares to the source into.Source, and stores into as the state of this source. If both sources
// have a row for an object, the later state is kept. move uses several transactions, so a share of any size requires
// little memory. After a crash, the next process calls TakeOver again, which moves the remaining rows.
//
// An error means that rows cannot be read. If Options.Reading ends before all rows are moved, move returns nil.
func (t *Tracker) move(into ledger.State, shares []informer.Share) error {
	_, known, err := t.store.Load(into.Source.Name)
	if err != nil {
		return err
	}
	versions := map[string]string{} // by key
	for _, o := range known {
		versions[o.Key()] = o.ResourceVersion
	}
	for _, share := range shares {
		from, rows, err := t.loadShare(share)
		if err != nil {
			return err
		}
		for len(rows) > 0 {
			to, left, n := ledger.Update{State: into}, ledger.Update{State: from}, 0
			for size := 0; n < len(rows) && size < partBytes; n++ {
				o, key := rows[n], rows[n].Key()
				left.Deletes = append(left.Deletes, key)
				if before := versions[key]; before != "" && ledger.Later(before, o.ResourceVersion) == before {
					continue
				}
				if o.Raw, err = t.store.Fetch(share.Source, key, o.Identity); err != nil {
					return err
				}
				to.Upserts, versions[key] = append(to.Upserts, o), o.ResourceVersion
				size += len(o.Raw)
			}
			rows = rows[n:]
			if !t.retry(func() error { return t.store.Commit([]ledger.Update{to, left}, t.currentFilters(), nil) }) {
				return nil
			}
		}
	}
	t.retry(func() error { return t.store.Commit([]ledger.Update{{State: into}}, t.currentFilters(), nil) })
	return nil
}

// loadShare returns the rows of a share, and the state of the source that they belong to.
func (t *Tracker) loadShare(share informer.Share) (ledger.State, []*object.Object, error) {
	state, rows, err := t.store.Load(share.Source)
	return state, slices.DeleteFunc(rows, func(o *object.Object) bool { return !share.In(o.Namespace) }), err
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
		_, rows, err := t.loadShare(share)
		return err == nil && len(rows) == 0
	})
}

// join returns the state of a source that takes over other sources. Its watermark is the lowest watermark of these
// sources. The same applies to the watermark of each sink that knows all of them. A sink that knows only some of them
// is sent an initial list again. Its history is the latest history of these sources. join also returns the shares whose
// sources can be taken over.
func (t *Tracker) join(into informer.Source, shares []informer.Share) (state ledger.State, taken []informer.Share) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(name string) bool {
		s := t.sources[name]
		if s == nil || s.state.ResourceVersion == "" || s.ledger != nil {
			return false
		}
		other := s.state
		other.Sinks, other.Refilters = withSpilled(&other, t.queues.Spilled(name, other.History)), maps.Clone(other.Refilters)
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
		// Each source detects by itself that etcd was restored. In the history of a source that has not detected this
		// yet, new states would seem old.
		state.History = ledger.Later(state.History, other.History)
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
			taken = append(taken, share)
		}
	}
	state.Source = into
	return state, taken
}

// joinRefilters adds to a state the filters through which a sink may know another source. If one of the two has no
// Refilter, the sink may know that source through its current filter, which is then added.
func (t *Tracker) joinRefilters(sink string, state, other *ledger.State) {
	a, inOne := state.Refilters[sink]
	b, inOther := other.Refilters[sink]
	if !inOne && !inOther {
		return
	}
	aKnown, bKnown := !inOne || a.Settled, !inOther || b.Settled // by its current filter
	both := ledger.Refilter{
		Filters: slices.Concat(a.Filters, b.Filters), Change: max(a.Change, b.Change), Settled: aKnown && bKnown,
		Former: slices.Concat(a.Former, b.Former),
	}
	if aKnown != bKnown {
		both.Filters = append(both.Filters, t.filters[sink])
	}
	slices.Sort(both.Filters)
	both.Filters = slices.Compact(both.Filters)
	slices.Sort(both.Former)
	both.Former = slices.Compact(both.Former)
	if state.Refilters == nil {
		state.Refilters = map[string]ledger.Refilter{}
	}
	state.Refilters[sink] = both
}

// earlier returns the earlier of two resourceVersions of one resource. Both must be non-empty.
func earlier(a, b string) string {
	if ledger.Later(a, b) == a {
		return b
	}
	return a
}

package ledger

import (
	"slices"
	"sync/atomic"
)

// CountIn makes the ledger add the size of its waiting changes (see Held) to total, until Discard is called. It must be
// called before the first change.
func (l *Ledger) CountIn(total *atomic.Int64) { l.total = total }

// Discard removes all waiting changes and subtracts their size from the total. The ledger must not be used afterwards.
func (l *Ledger) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes, l.writing, l.unreached = 0, 0, 0
	clear(l.pending)
	l.count()
}

// count updates the total. It must be called with mu held.
func (l *Ledger) count() {
	if l.total != nil {
		held := l.held()
		l.total.Add(held - l.counted)
		l.counted = held
	}
}

func (l *Ledger) held() int64 { return max(0, l.bytes-l.unreached) }

// Held returns the size in bytes of the row changes that wait for sinks to settle events. Changes since the last
// position (for example while a list is being processed) do not count, because they wait for the next position.
func (l *Ledger) Held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held()
}

// HeldBy returns the names of the sinks that keep changes waiting, which are the sinks with the lowest watermark.
func (l *Ledger) HeldBy() (sinks []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	least := l.least()
	for name, s := range l.sinks {
		if m, _ := s.watermark(); m.seq == least.seq && m.seq < l.here.seq {
			sinks = append(sinks, name)
		}
	}
	slices.Sort(sinks)
	return sinks
}

// GivingList reports whether a sink is still being sent its initial list, or the difference between its filters. In
// this case, the watermark cannot move until the rest of the list or difference has been sent.
func (l *Ledger) GivingList() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(s *sinkLedger) bool { return !s.caught })
}

// Squeeze drops waiting changes that a restart does not need. For an object that exists, the last change is kept and,
// if the object was created after the watermark, the first change too. For an object that was created and deleted after
// the watermark, nothing is kept. Squeeze is for sinks that drop or merge events: such a sink can hold back the
// watermark while the number of settled changes after it grows without limit.
//
// Squeeze has two disadvantages after a crash. First, a row can be older than the watermark. If the object crossed a
// filter's border between the row's state and the watermark, this is not detected. Second, the row of an object that
// was created and then deleted can be missing, so its deletion is not sent if the API server's history does not reach
// back to the watermark.
func (l *Ledger) Squeeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.count()
	for key, row := range l.pending {
		// If a change was collected but could not be written, it is unknown whether the row exists.
		failed, reached := before(*row, l.covered), before(*row, l.here.seq)
		l.replace(row, failed, reached, squeeze((*row)[failed:reached])...)
		if len(*row) == 0 {
			delete(l.pending, key)
		}
	}
}

// squeeze returns the changes to one row that must be kept, in a new slice.
func squeeze(changes []rowChange) (kept []rowChange) {
	for _, c := range changes {
		last := len(kept) - 1
		switch {
		case c.object == nil && changes[0].added:
			kept = nil // neither the object nor an earlier one with its name has a row
		case c.object == nil:
			kept = []rowChange{c}
		case last >= 0 && kept[last].object != nil && !kept[last].added:
			kept[last] = c // replaces an older state
		default:
			kept = append(kept, c)
		}
	}
	return kept
}

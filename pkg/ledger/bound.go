package ledger

import (
	"slices"
	"sync/atomic"
)

// CountIn makes the ledger add the size of its waiting changes (see Held) to total, until Discard is called.
func (l *Ledger) CountIn(total *atomic.Int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = total
	l.count()
}

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
// the watermark, nothing is kept. Squeeze is for sinks that drop or merge events, because such a sink can hold back the
// watermark while any number of later changes is settled.
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
		kept := append(slices.Clone((*row)[:failed]), squeeze((*row)[failed:reached])...)
		if len(kept) == reached {
			continue
		}
		l.drop((*row)[:reached]...)
		for _, c := range kept {
			l.bytes += c.size()
		}
		if kept = append(kept, (*row)[reached:]...); len(kept) == 0 {
			delete(l.pending, key)
		} else {
			*row = kept
		}
	}
}

// squeeze returns the changes to one row that must be kept, in a new slice.
func squeeze(changes []rowChange) (kept []rowChange) {
	for _, c := range changes {
		last := len(kept) - 1
		switch {
		case c.object != nil && last >= 0 && kept[last].object != nil && !kept[last].added:
			kept[last] = c // replace an older state
		case c.object == nil && last >= 0 && kept[last].object != nil:
			if last > 0 && kept[last-1].added {
				last-- // remove both the first and the last state of the created object
			}
			created := kept[last].added
			kept = kept[:last]
			if !created { // the row exists, so keep its deletion
				kept = append(kept, c)
			}
		case c.object == nil && last >= 0: // the object is already deleted
		default:
			kept = append(kept, c)
		}
	}
	return kept
}

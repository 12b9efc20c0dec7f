package ledger

import (
	"slices"
	"sync/atomic"
)

// CountIn makes the ledger add what it holds (Held) to a total, until Discard.
func (l *Ledger) CountIn(total *atomic.Int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = total
	l.count()
}

// Discard takes what the ledger holds off the total. The ledger must not be used afterwards.
func (l *Ledger) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes, l.unreached = 0, 0
	clear(l.pending)
	l.count()
}

// count brings the total up to date. The caller holds mu.
func (l *Ledger) count() {
	if l.total != nil {
		held := l.held()
		l.total.Add(held - l.counted)
		l.counted = held
	}
}

func (l *Ledger) held() int64 { return max(0, l.bytes-l.unreached) }

// Held is the size, in bytes, of the changes of rows that wait for sinks to settle something. What came since the last
// position, as in the middle of a list, does not count: it waits for the end of the list.
func (l *Ledger) Held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held()
}

// HeldBy are the sinks that what is held waits for: those that are furthest behind.
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

// GivingList reports whether some sink is still being given the rows, so that the source has to go on before the
// watermark can move.
func (l *Ledger) GivingList() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(s *sinkLedger) bool { return !s.caught })
}

// Squeeze lets go of states that wait and that a restart can do without, at a cost: of an object that exists the
// first and the last state stay, of one that was created and deleted meanwhile nothing. It is for sinks that drop or
// merge events, and so hold the watermark while any number of changes is settled behind it.
//
// After a crash a row can then be older than the watermark, so that a filter's border that the object crossed in
// between is not seen; and an object that was deleted meanwhile can be missing, so that its deletion is not sent if
// the API server's history does not reach back to the watermark.
func (l *Ledger) Squeeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.count()
	for key, row := range l.pending {
		reached, failed := before(*row, l.here.seq), 0
		if (*row)[0].seq == 0 {
			failed = 1 // could not be written: whether there is a row is not known
		}
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

// squeeze gives what is left of the changes of one row, in memory of its own.
func squeeze(changes []rowChange) (kept []rowChange) {
	for _, c := range changes {
		last := len(kept) - 1
		switch {
		case c.object != nil && last >= 0 && kept[last].object != nil && !kept[last].added:
			kept[last] = c // takes the place of an older state
		case c.object == nil && last >= 0 && kept[last].object != nil:
			if last > 0 && kept[last-1].added {
				last-- // the first and the last state of what was created
			}
			created := kept[last].added
			kept = kept[:last]
			if !created { // there is a row
				kept = append(kept, c)
			}
		case c.object == nil && last >= 0: // gone already
		default:
			kept = append(kept, c)
		}
	}
	return kept
}

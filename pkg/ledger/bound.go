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

// Discard subtracts what the ledger holds from the total. The ledger must not be used afterwards.
func (l *Ledger) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes, l.unreached = 0, 0
	clear(l.pending)
	l.count()
}

// count updates the total. The caller holds mu.
func (l *Ledger) count() {
	if l.total != nil {
		held := l.held()
		l.total.Add(held - l.counted)
		l.counted = held
	}
}

func (l *Ledger) held() int64 { return max(0, l.bytes-l.unreached) }

// Held returns the size, in bytes, of the changes of rows that wait for sinks to settle events. Changes since the last
// position, as in the middle of a list, do not count: they wait for the end of the list.
func (l *Ledger) Held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held()
}

// HeldBy returns the sinks for which the changes wait: those that are furthest behind.
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

// GivingList reports whether a sink is still being sent its initial list, so that the source has to go on before the
// watermark can move.
func (l *Ledger) GivingList() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(s *sinkLedger) bool { return !s.caught })
}

// Squeeze drops waiting states that a restart can do without. Of an object that exists, the last state stays, and the
// first one if it was created meanwhile; of an object that was created and deleted meanwhile, nothing stays. It is for
// sinks that drop or merge events, and so hold the watermark while any number of changes is settled above it.
//
// It has a cost after a crash. A row can then be older than the watermark, so that an object's crossing of a filter's
// border in between is not noticed. And an object that was deleted meanwhile can be missing, so that its deletion is
// not sent if the API server's history does not reach back to the watermark.
func (l *Ledger) Squeeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.count()
	for key, row := range l.pending {
		reached, failed := before(*row, l.here.seq), 0
		if (*row)[0].seq == 0 {
			failed = 1 // it could not be written, so that it is unknown whether there is a row
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

// squeeze returns what is left of the changes of one row, in new memory.
func squeeze(changes []rowChange) (kept []rowChange) {
	for _, c := range changes {
		last := len(kept) - 1
		switch {
		case c.object != nil && last >= 0 && kept[last].object != nil && !kept[last].added:
			kept[last] = c // replaces an older state
		case c.object == nil && last >= 0 && kept[last].object != nil:
			if last > 0 && kept[last-1].added {
				last-- // the first and the last state of what was created
			}
			created := kept[last].added
			kept = kept[:last]
			if !created { // there is a row
				kept = append(kept, c)
			}
		case c.object == nil && last >= 0: // it is deleted already
		default:
			kept = append(kept, c)
		}
	}
	return kept
}

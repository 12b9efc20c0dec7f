package ledger

import (
	"cmp"
	"slices"
	"time"
)

// sinkLedger contains the events of a sink that are not settled, and some settled events that are not removed yet.
type sinkLedger struct {
	here   mark
	caught bool   // the sink was sent its whole initial list or difference, or did not need one
	began  bool   // this process or an earlier process sent an event to the sink
	floor  string // the sink's watermark when the process started; its watermark is never lower
	// refilter is set if the sink was sent events according to other filters than its current filter, and has to be sent
	// the difference.
	refilter *Refilter

	changes []entry // sorted by number; the entries before start are settled, the entry at start is not
	start   int
	last    uint64 // the last number that track returned
	open    int    // number of unsettled events
}

// entry is an event that was sent to a sink, with the sink's position before the event.
type entry struct {
	number  uint64
	since   int64 // time that was passed to Track, in nanoseconds since 1970
	before  mark
	fresh   bool // the event is part of the initial list, so there is no watermark before it
	settled bool
}

// keepChanges is the minimum room for settled entries in sinkLedger.changes.
const keepChanges = 1024

// track appends an event and returns its number.
func (s *sinkLedger) track(c entry) uint64 {
	if len(s.changes) == cap(s.changes) && len(s.changes) > 2*s.open+keepChanges { // reuse the room of settled entries
		open := slices.DeleteFunc(s.changes[s.start:], func(c entry) bool { return c.settled })
		n := copy(s.changes, open)
		clear(s.changes[n:])
		s.changes, s.start = s.changes[:n], 0
	}
	s.last++
	c.number = s.last
	s.changes = append(s.changes, c)
	s.open++
	return s.last
}

// settle marks an event as settled and reports whether it was unsettled before.
func (s *sinkLedger) settle(number uint64) bool {
	at, found := s.find(number)
	if !found || s.changes[at].settled {
		return false
	}
	s.changes[at].settled, s.changes[at].before = true, mark{} // releases the memory of the position
	s.open--
	for s.start < len(s.changes) && s.changes[s.start].settled {
		s.start++
	}
	if s.start == len(s.changes) {
		s.changes, s.start = s.changes[:0], 0
		if cap(s.changes) > keepChanges {
			s.changes = nil
		}
	}
	return true
}

// find returns the index of the entry with this number. Numbers are consecutive unless track has removed settled
// entries. Only in that case does find need a binary search.
func (s *sinkLedger) find(number uint64) (at int, found bool) {
	if s.start == len(s.changes) || number < s.changes[s.start].number {
		return 0, false
	}
	at = s.start + int(number-s.changes[s.start].number)
	if at < len(s.changes) && s.changes[at].number == number {
		return at, true
	}
	byNumber := func(c entry, n uint64) int { return cmp.Compare(c.number, n) }
	at, found = slices.BinarySearchFunc(s.changes[s.start:], number, byNumber)
	return s.start + at, found
}

// oldest returns the oldest unsettled event, or nil if all events are settled.
func (s *sinkLedger) oldest() *entry {
	if s.start == len(s.changes) {
		return nil
	}
	return &s.changes[s.start]
}

// watermark returns the watermark of the sink. fresh is true if the sink has not settled its initial list or
// difference.
func (s *sinkLedger) watermark() (m mark, fresh bool) {
	if c := s.oldest(); c != nil {
		return c.before, c.fresh
	}
	return s.here, !s.caught
}

// Lag describes how far a sink is behind the source.
type Lag struct {
	Open            int       // number of unsettled events
	Since           time.Time // when the oldest unsettled event was sent to the sink; zero if all are settled
	ResourceVersion string    // the sink's watermark; empty until the initial list is settled
}

// Lags returns the lag of every sink.
func (l *Ledger) Lags() map[string]Lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	lags := map[string]Lag{}
	for name, s := range l.sinks {
		lag := Lag{Open: s.open}
		if c := s.oldest(); c != nil {
			lag.Since = time.Unix(0, c.since)
		}
		if m, fresh := s.watermark(); !fresh {
			lag.ResourceVersion = m.resourceVersion
		}
		lags[name] = lag
	}
	return lags
}

package ledger

import (
	"cmp"
	"slices"
	"time"
)

// sinkLedger holds a sink's changes that are not settled, and for a while some that are.
type sinkLedger struct {
	here   mark
	caught bool   // it was sent the rows, or knows them
	began  bool   // it was sent an event, by this process or an earlier one
	floor  string // what it had settled before the process began: its watermark is never lower
	// refilter is set if it knows the source by other filters than its present one, and is to be sent the difference.
	refilter *Refilter

	changes []entry // by number. The first one from start on is not settled.
	start   int
	last    uint64 // number that was given
	open    int    // how many are not settled
}

// entry is an event that a sink was sent, and the sink's position before it.
type entry struct {
	number  uint64
	since   int64 // when, in nanoseconds since 1970
	before  mark
	fresh   bool // of the initial list: there is no watermark before it
	settled bool
}

// keepChanges is the least room for changes, in addition to the open ones.
const keepChanges = 1024

// track appends a change and returns its number.
func (s *sinkLedger) track(c entry) uint64 {
	if len(s.changes) == cap(s.changes) && len(s.changes) > 2*s.open+keepChanges { // make room instead of growing
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

// settle reports whether the number was open.
func (s *sinkLedger) settle(number uint64) bool {
	at, found := s.find(number)
	if !found || s.changes[at].settled {
		return false
	}
	s.changes[at].settled, s.changes[at].before = true, mark{} // releases the position
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

// find returns the index of a number. It only searches if changes were left out.
func (s *sinkLedger) find(number uint64) (at int, found bool) {
	if s.start == len(s.changes) || number < s.changes[s.start].number {
		return 0, false
	}
	at = s.start + int(number-s.changes[s.start].number)
	if at < len(s.changes) && s.changes[at].number == number {
		return at, true
	}
	at, found = slices.BinarySearchFunc(
		s.changes[s.start:],
		number,
		func(c entry, n uint64) int { return cmp.Compare(c.number, n) },
	)
	return s.start + at, found
}

// oldest returns the oldest change that is not settled; nil if there is none.
func (s *sinkLedger) oldest() *entry {
	if s.start == len(s.changes) {
		return nil
	}
	return &s.changes[s.start]
}

// watermark returns the watermark of the sink. fresh: the sink has not settled its initial list.
func (s *sinkLedger) watermark() (m mark, fresh bool) {
	if c := s.oldest(); c != nil {
		return c.before, c.fresh
	}
	return s.here, !s.caught
}

// Lag says how far a sink is behind.
type Lag struct {
	Open            int       // events that are not settled
	Since           time.Time // when the oldest of them was handed over; zero if there are none
	ResourceVersion string    // the sink's watermark; empty while it has not settled its initial list
}

// Lags returns the lag of each sink.
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

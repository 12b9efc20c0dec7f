package checkpoint

// sinkLedger holds a sink's changes from the oldest one on that is not settled. Their number is bounded by what the
// sink's queue holds.
type sinkLedger struct {
	here   mark
	caught bool   // it was given the rows, or needs not to be
	floor  string // what it had settled in an earlier life: its watermark does not fall behind that
	// changes[n] has the number first+n. The first of them is not settled.
	changes []entry
	start   int    // of what is in use of changes
	first   uint64 // the number of changes[start]
	open    int    // how many are not settled
}

// entry is a change that a sink was given, and the sink's position before it.
type entry struct {
	seq     uint64
	since   int64 // when, in nanoseconds since 1970
	before  mark
	fresh   bool // of the initial list: there is no watermark before it
	settled bool
}

// expect appends a change and gives its number.
func (s *sinkLedger) expect(c entry) uint64 {
	if len(s.changes) == cap(s.changes) && s.start > len(s.changes)/2 { // rather than to grow
		n := copy(s.changes, s.changes[s.start:])
		clear(s.changes[n:])
		s.changes, s.start = s.changes[:n], 0
	}
	s.changes = append(s.changes, c)
	s.open++
	return s.first + uint64(len(s.changes)-s.start-1)
}

// settle reports whether the number was open.
func (s *sinkLedger) settle(number uint64) bool {
	waiting := s.changes[s.start:]
	if number < s.first || number-s.first >= uint64(len(waiting)) || waiting[number-s.first].settled {
		return false
	}
	waiting[number-s.first].settled = true
	s.open--
	for s.start < len(s.changes) && s.changes[s.start].settled {
		s.changes[s.start] = entry{} // let go of its position
		s.start++
		s.first++
	}
	if s.start == len(s.changes) {
		s.changes, s.start = s.changes[:0], 0
		if cap(s.changes) > keepChanges {
			s.changes = nil
		}
	}
	return true
}

// keepChanges is for how many changes room is kept when none is open.
const keepChanges = 1024

// oldest is the oldest change that is not settled; nil if there is none.
func (s *sinkLedger) oldest() *entry {
	if s.start == len(s.changes) {
		return nil
	}
	return &s.changes[s.start]
}

// watermark of a sink; fresh: it has not settled its initial list.
func (s *sinkLedger) watermark() (m mark, fresh bool) {
	if c := s.oldest(); c != nil {
		return c.before, c.fresh
	}
	return s.here, !s.caught
}

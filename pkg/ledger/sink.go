package ledger

// sinkLedger contains the events of a sink that are not settled.
type sinkLedger struct {
	here   mark
	caught bool   // the sink was sent its whole initial list or difference, or did not need one
	began  bool   // this process or an earlier process sent an event to the sink
	floor  string // the sink's watermark when the process started; its watermark is never lower
	// refilter is set if the sink's filter has changed. It counts until the difference is settled: see isRefiltering.
	refilter *Refilter
	knows    bool   // when the filter changed, the sink was sent the whole source
	before   uint64 // the last number before the filter changed
	until    uint64 // the last number of the initial list or difference; valid if caught
	// former is refilter after the difference, until the source has brought everything that an earlier process sent.
	former *Refilter

	open  map[uint64]entry // unsettled events by number
	first uint64           // the lowest number in open, or last+1 if all events are settled
	last  uint64           // the last number that track returned
	empty uint64           // the value of last when open was created

	tracked   uint64 // number of the sink's last event that a restart could bring again, among all changes and events
	collected uint64 // up to this number, the watermark of the last Collect covers everything
}

// renewAfter is the number of events after which open is replaced, to release the memory of events that were settled.
const renewAfter = 16 << 10

// entry is an unsettled event, with the sink's position before the event.
type entry struct {
	before mark
	fresh  bool // the event is part of the initial list, so there is no watermark before it
}

// track adds an event and returns its number.
func (s *sinkLedger) track(e entry) uint64 {
	if len(s.open) == 0 && s.last-s.empty >= renewAfter { // a map never shrinks
		s.open, s.empty = map[uint64]entry{}, s.last
	}
	s.last++
	s.open[s.last] = e
	return s.last
}

// settle removes an event and reports whether it was unsettled.
func (s *sinkLedger) settle(number uint64) bool {
	if !s.isOpen(number) {
		return false
	}
	delete(s.open, number)
	for s.first <= s.last && !s.isOpen(s.first) {
		s.first++
	}
	return true
}

func (s *sinkLedger) isOpen(number uint64) bool { _, ok := s.open[number]; return ok }

// oldest returns the oldest unsettled event. ok is false if all events are settled.
func (s *sinkLedger) oldest() (e entry, ok bool) {
	e, ok = s.open[s.first]
	return e, ok
}

// watermark returns the watermark of the sink. fresh is true if the sink has not settled its initial list or
// difference.
func (s *sinkLedger) watermark() (m mark, fresh bool) {
	if e, ok := s.oldest(); ok {
		return e.before, e.fresh
	}
	return s.here, !s.caught
}

// Unsettled returns the number of events that a sink has not settled. whole reports whether the sink was sent either
// its whole initial list or nothing.
func (l *Ledger) Unsettled(sink string) (events int, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sinks[sink]
	return len(s.open), s.caught || !s.began
}

// Open returns the number of unsettled events of all sinks.
func (l *Ledger) Open() (open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		open += len(s.open)
	}
	return open
}

// Recorded returns the number of the last change, or of the last event for a sink if that is later. Events of
// TrackAgain do not count. It returns 0 if the ledger has no position yet.
func (l *Ledger) Recorded(sink string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.here.resourceVersion == "" {
		return 0
	}
	return max(l.changed, l.sinks[sink].tracked)
}

// Covers reports whether a sink's watermark of the last Collect covers everything up to a number that Recorded
// returned: a restart with this watermark does not bring an event up to there again.
func (l *Ledger) Covers(sink string, number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sinks[sink].collected >= number
}

package ledger

import "time"

// Wait records an event that is to be sent to a sink later. Like an event that was sent, it keeps the sink's watermark
// at the position before it, but it does not count as lag. It returns a number for Sent and Settle.
func (l *Ledger) Wait(sink string) uint64 {
	return l.track(sink, time.Unix(0, 0), false)
}

// Sent records that an event of Wait is sent at the time at.
func (l *Ledger) Sent(sink string, number uint64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sinks[sink]
	if e, ok := s.open[number]; ok && e.since == 0 {
		e.since = at.UnixNano()
		s.open[number] = e
		s.waiting--
	}
}

// oldestSent returns the oldest unsettled event that does not wait. ok is false if there is none.
func (s *sinkLedger) oldestSent() (e entry, ok bool) {
	if len(s.open) == s.waiting {
		return e, false
	}
	number := s.first
	for s.open[number].since == 0 {
		number++
	}
	return s.open[number], true
}

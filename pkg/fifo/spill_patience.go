package fifo

import "time"

// holdUp is for how many times its Patience a queue that is full all the time holds the source up in all.
const holdUp = 10

// patienceTick is how often a push that waits before the queue spills is looked at again, besides at each acknowledgement.
const patienceTick = 10 * time.Millisecond

// waits reports whether a push is to wait for the consumer, rather than make the queue spill.
func (s *Spill[T]) waits() bool {
	if s.opts.Patience == 0 || s.head.len() == 0 {
		return false
	}
	now := time.Now()
	if s.heldSince.IsZero() {
		s.heldSince = now
	}
	waits := now.Sub(s.opts.Since(s.head.front().v)) < s.opts.Patience && now.Sub(s.heldSince) < holdUp*s.opts.Patience &&
		(s.opts.Hurry == nil || !s.opts.Hurry())
	if waits && !s.patient {
		s.kick() // Run looks again every patienceTick
	}
	s.patient = waits
	return waits
}

// look lets a push that waits for the consumer make the queue spill, if that is due.
func (s *Spill[T]) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit()
	s.patient = s.patient && s.waiters.head != nil
}

package fifo

import "time"

const (
	// holdUp is for how many times its Patience a queue holds the source up in all, until the consumer has had nothing to do.
	// Not at all, if somebody else has starved meanwhile.
	holdUp = 10
	// rest is how long that has to be.
	rest = 10 * time.Millisecond
	// easyPart is the part of the bounds above which a push waits for the consumer although there is room, and the part of
	// Patience for which it does. What lies in the queue for longer than the caches remember it costs more to send.
	easyPart, easyPatience = 4, 8
)

// patienceTick is how often a push that waits before the queue spills is looked at again, besides at each acknowledgement.
const patienceTick = 10 * time.Millisecond

// waits reports whether a push is to wait for the consumer, rather than to fill the queue or make it spill.
func (s *Spill[T]) waits(size int64) bool {
	fits := s.fits(size)
	easy := fits && s.easyShare.fits(s.items, s.bytes, size)
	if s.opts.Patience == 0 || s.heldAt.IsZero() && (s.head.len() == 0 || easy) {
		s.rested()
		return false
	}
	now := time.Now()
	patience := s.opts.Patience
	if fits {
		patience /= easyPatience
	}
	if s.opts.Hurry != nil && s.opts.Hurry() {
		s.held = holdUp * s.opts.Patience // or the next push would wait until somebody starves again
	}
	waits := s.head.len() > 0 && !easy && now.Sub(s.opts.Since(s.head.front().v)) < patience &&
		s.held+s.heldFor(now) < holdUp*s.opts.Patience
	switch {
	case !waits:
		s.held += s.heldFor(now)
		s.heldAt = time.Time{}
	case s.heldAt.IsZero():
		s.heldAt = now
	}
	if waits && !s.patient {
		s.kick() // Run looks again every patienceTick
	}
	s.patient = waits
	return waits
}

// heldFor is how long the first waiter has waited.
func (s *Spill[T]) heldFor(now time.Time) time.Duration {
	if s.heldAt.IsZero() {
		return 0
	}
	return now.Sub(s.heldAt)
}

// rested forgets for how long the source was held up, if the consumer has had nothing to do since: the source has no more
// than it has pushed.
func (s *Spill[T]) rested() {
	if s.held > 0 && s.items == 0 && s.Idle() >= rest {
		s.held = 0
	}
}

// look lets a push that waits for the consumer make the queue spill, if that is due.
func (s *Spill[T]) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit()
	s.patient = s.patient && s.waiters.head != nil
}

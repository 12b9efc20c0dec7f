package fifo

import (
	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/segment"
)

// fill reads from disk until as much waits in memory as a Take with these limits may give, or no more is only there.
// What can't be read is reported and skipped. Only the consumer calls it.
func (s *Spill[T]) fill(limit int, maxBytes int64) error {
	s.mu.Lock()
	from, wanted := s.headEnd+1, s.wants(limit, maxBytes)
	s.mu.Unlock()
	for wanted {
		r, err := s.log.Read(from)
		if err != nil {
			return err
		}
		wanted = s.load(r, limit, maxBytes)
		from = r.Last + 1
	}
	return nil
}

// wants reports whether a Take with these limits may give more than what waits in memory, and there is room for it.
// Must be called with mu held.
func (s *Spill[T]) wants(limit int, maxBytes int64) bool {
	waiting, waitingBytes := s.head.len()-s.taken.len(), s.headBytes()-s.takenBytes
	if s.headEnd >= s.diskEnd() || waiting > 0 && (waiting >= limit || waitingBytes >= maxBytes) {
		return false
	}
	return s.head.len() == 0 || s.headShare.fits(s.head.len(), s.headBytes(), 1)
}

// load puts what was read to head, if that has room, and reports whether more is wanted. While it was read nobody has
// changed headEnd: head gets longer by items of buf only where nothing is on disk alone between the two, and is cut
// at its end only when it exceeds its share, which it does only when the queue begins to spill, before the first of
// it is on disk alone.
func (s *Spill[T]) load(r segment.Record, limit int, maxBytes int64) (wanted bool) {
	var v T
	var size int64
	if r.Err == nil {
		v, r.Err = s.opts.Decode(r.Data)
	}
	if r.Err == nil {
		size = s.sizeOf(v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.head.len() > 0 && !s.headShare.fits(s.head.len(), s.headBytes(), size):
		return false
	case r.Err != nil:
		s.opts.Logger.Error("spilled items cannot be read back and are lost",
			"lost", r.Last-r.First+1, "path", s.opts.Path, "err", r.Err)
		s.replace(Loss{r.First, r.Last, s.log.Positions(), r.Err})
	case mutant.On("lose-spilled") && r.Last%16 == 0:
		s.headEnd = r.Last
	default:
		s.add(size)
		s.head.push(spilled[T]{v, size, r.Last})
		s.headEnd = r.Last
	}
	return s.wants(limit, maxBytes)
}

// replace puts what OnCorrupt gives for lost items in their place. All of it has the number of
// the first lost item, so that the run is acknowledged when the last of it is. Must be called with mu held.
func (s *Spill[T]) replace(l Loss) {
	for _, v := range s.replacements(l) {
		size := s.sizeOf(v)
		s.add(size)
		s.head.push(spilled[T]{v, size, l.First})
	}
	s.headEnd = l.Last
	s.dropped += int64(l.Items())
}

func (s *Spill[T]) replacements(l Loss) []T {
	if s.opts.OnCorrupt == nil {
		return nil
	}
	return s.opts.OnCorrupt(l)
}

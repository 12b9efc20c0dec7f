package fifo

import (
	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/segment"
)

// fill reads items from disk until memory has enough waiting items for a Take with these limits, memory is full, or no
// item is only on disk. Items that cannot be read are reported and skipped. Only the consumer may call fill.
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

// wants reports whether items must be read from disk for a Take with these limits, and memory has room for another
// item. It must be called with mu held.
func (s *Spill[T]) wants(limit int, maxBytes int64) bool {
	waiting, waitingBytes := s.head.len()-s.taken.len(), s.headBytes()-s.takenBytes
	if s.headEnd >= s.diskEnd() || waiting > 0 && (waiting >= limit || waitingBytes >= maxBytes) {
		return false
	}
	return s.head.len() == 0 || s.headShare.fits(s.head.len(), s.headBytes(), 1)
}

// load appends the item of a record to head, if there is room, and reports whether another record has to be read.
//
// headEnd cannot change while the record is read, because an item is then only on disk, and items move from buf to head
// only if no item is only on disk.
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
		s.opts.Logger.Error("cannot read back spilled items, they are lost",
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

// replace appends the replacements that OnCorrupt returns for lost items. All replacements have the number of the first
// lost item. Therefore the lost items count as acknowledged only when the last replacement is acknowledged. It must be
// called with mu held.
func (s *Spill[T]) replace(l Loss) {
	for _, v := range s.opts.OnCorrupt(l) {
		size := s.sizeOf(v)
		s.add(size)
		s.head.push(spilled[T]{v, size, l.First})
	}
	s.headEnd = l.Last
	s.dropped += int64(l.Items())
}

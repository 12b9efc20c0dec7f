package fifo

import (
	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/segment"
)

// readBytes is about how much is read from disk at a time.
const readBytes = 1 << 20

// fill reads from disk until as much waits in memory as a Take with these limits may give, or no more lies only there.
// What can't be read is told and skipped. Only the consumer calls it.
func (s *Spill[T]) fill(limit int, maxBytes int64) error {
	var records []segment.Record
	for {
		from, items, bytes, ok := s.wanted(limit, maxBytes)
		if !ok {
			return nil
		}
		var err error
		if records, err = s.log.Read(records[:0], from, max(1, items), max(1, bytes)); err != nil {
			return err
		}
		if !s.loaded(from, s.decode(records)) {
			return nil
		}
	}
}

// wanted says what to read next: items from the number from on, at least one, but not more than so many items and bytes.
func (s *Spill[T]) wanted(limit int, maxBytes int64) (from uint64, items int, bytes int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, waitingBytes := s.head.len()-s.taken.len(), s.headBytes()-s.takenBytes
	if s.headEnd >= s.diskEnd() || waiting > 0 && (waiting >= limit || waitingBytes >= maxBytes) {
		return 0, 0, 0, false
	}
	items, bytes = min(limit-waiting, s.headShare.items-s.head.len()), min(readBytes, maxBytes-waitingBytes)
	if s.headShare.bytes > 0 {
		bytes = min(bytes, s.headShare.bytes-s.headBytes())
	}
	if s.head.len() > 0 && (items <= 0 || bytes <= 0) {
		return 0, 0, 0, false
	}
	return s.headEnd + 1, items, bytes, true
}

// readItem is an item that was read, or, with Err, a run of items that could not be.
type readItem[T any] struct {
	segment.Record
	v    T
	size int64
}

func (s *Spill[T]) decode(records []segment.Record) []readItem[T] {
	items := make([]readItem[T], len(records))
	for i, r := range records {
		items[i].Record = r
		if r.Err == nil {
			items[i].v, items[i].Err = s.opts.Decode(r.Data)
		}
		if items[i].Err == nil {
			items[i].size = s.sizeOf(items[i].v)
		}
	}
	return items
}

// loaded puts what was read to head, as far as it has room, and reports whether that was anything.
func (s *Spill[T]) loaded(from uint64, items []readItem[T]) bool {
	lost, err := s.append(items)
	if lost > 0 {
		s.opts.Logger.Error("spilled items cannot be read back and are lost", "lost", lost, "path", s.opts.Path, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headEnd >= from
}

// append does so. While it was read nobody has changed headEnd: head gets longer by items of buf
// only where nothing lies on disk alone between the two, and is cut at its end only when it exceeds its share, which it
// does only when the queue begins to spill, before the first of it is on disk alone.
func (s *Spill[T]) append(items []readItem[T]) (lost int, firstErr error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items {
		if s.head.len() > 0 && !s.headShare.fits(s.head.len(), s.headBytes(), item.size) {
			break
		}
		if item.Err != nil {
			if firstErr == nil {
				firstErr = item.Err
			}
			lost += s.replace(Loss{item.First, item.Last, s.log.Positions(), item.Err})
			continue
		}
		if s.headEnd = item.Last; mutant.On("lose-spilled") && item.Last%16 == 0 {
			continue
		}
		s.add(item.size)
		s.head.push(spilled[T]{item.v, item.size, item.Last})
		s.headEnd = item.Last
	}
	return lost, firstErr
}

// replace puts what OnCorrupt gives for lost items in their place, and returns how many are lost. All of it has the number of
// the first lost item, so that the run is acknowledged when the last of it is. Must be called with mu held.
func (s *Spill[T]) replace(l Loss) int {
	for _, v := range s.replacements(l) {
		size := s.sizeOf(v)
		s.add(size)
		s.head.push(spilled[T]{v, size, l.First})
	}
	s.headEnd = l.Last
	s.dropped += int64(l.Items())
	return l.Items()
}

func (s *Spill[T]) replacements(l Loss) []T {
	if s.opts.OnCorrupt == nil {
		return nil
	}
	return s.opts.OnCorrupt(l)
}

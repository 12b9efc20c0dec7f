package fifo

import (
	"context"
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/internal/segment"
)

// front implements policy. The taken items are bounded by headShare, so a slow consumer cannot use the room of buf.
func (s *Spill[T]) front() (int64, bool) {
	taken := s.taken.len()
	next := &s.head
	at := taken
	if s.head.len() == taken {
		if s.buf.len() == 0 || s.headEnd < s.diskEnd() {
			return 0, false
		}
		next, at = &s.buf, 0
	}
	size := next.at(at).size
	return size, taken == 0 || s.headShare.fits(taken, s.takenBytes, size)
}

// pop implements policy.
func (s *Spill[T]) pop() (T, int64) {
	if s.head.len() == s.taken.len() {
		s.advance()
	}
	e := s.head.at(s.taken.len())
	s.takenBytes += e.size
	return e.v, e.size
}

// advance moves the oldest item of buf to head. It must not be called while an item between head and buf is only on
// disk.
func (s *Spill[T]) advance() {
	e := s.buf.pop()
	s.bufBytes -= e.size
	s.head.push(e)
	s.headEnd = e.seq
}

// Take implements [Queue]. If the taken items use half of the bounds, or one larger item is taken, Take waits for an
// acknowledgement. If a file cannot be opened, Take tries again after readRetry. After the end of Run, Take returns the
// items in memory, and then an error if more items are on disk.
func (s *Spill[T]) Take(ctx context.Context, buf []T, limit int, maxBytes int64) ([]T, error) {
	clear(buf)
	buf, limit = buf[:0], max(1, limit)
	for failing := false; ; {
		if err := ctx.Err(); err != nil {
			return buf, err
		}
		failed := s.fill(limit, maxBytes)
		if failing && failed == nil {
			s.recovered()
		}
		failing = failed != nil
		batch, err := s.tryTake(buf, limit, maxBytes)
		more := s.admitMore()
		switch {
		case len(batch) > 0:
			return batch, nil
		case err != nil && !more:
			return batch, err
		case errors.Is(failed, segment.ErrClosed):
			return batch, failed
		case failed != nil:
			s.failed(failed)
			pause(ctx, readRetry)
			continue
		}
		select {
		case <-s.work:
		case <-ctx.Done():
		}
	}
}

// admitMore accepts waiting pushes, because Take may have made room in buf, and reports whether items wait to be taken.
func (s *Spill[T]) admitMore() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit()
	return s.head.len() > s.taken.len() || s.headEnd < s.tail
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Ack implements [Queue].
func (s *Spill[T]) Ack(n int) {
	s.report(s.acknowledge(n))
	clear(s.released)
}

// acknowledge acknowledges n items, and returns the items that became settled.
func (s *Spill[T]) acknowledge(n int) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(n)
	s.released = s.released[:0]
	for range n {
		e := s.head.pop()
		s.takenBytes -= e.size
		switch {
		case !s.spilling:
			s.note(e.v, e.seq)
			s.released = append(s.released, e.v)
		case e.seq > s.durable: // otherwise it was settled when it was written
			s.note(e.v, e.seq)
			e.v = s.opts.Receipt(e.v)
			s.receipts.push(e)
		}
	}
	s.admit()
	if s.head.len() > s.taken.len() || s.headEnd < s.tail {
		s.announce() // the consumer may be waiting because it had taken its maximum
	}
	return s.released
}

// report calls OnSettled, unless items is empty.
func (s *Spill[T]) report(items []T) {
	if len(items) > 0 {
		s.opts.OnSettled(items)
	}
}

// note stores the position of an acknowledged item.
func (s *Spill[T]) note(v T, seq uint64) {
	if source, position := s.opts.Mark(v); source != "" && s.marks[source].seq < seq {
		s.marks[source] = mark{position, seq}
	}
}

package fifo

import (
	"context"
	"errors"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/internal/segment"
)

// next returns the item that is taken next, or nil if no item can be taken. The taken items are bounded by headShare,
// so a slow consumer cannot use the room of buf.
func (q *Queue[T]) next() *node[T] {
	n := q.ready.oldest()
	if n == nil && q.headEnd == q.diskEnd {
		n = q.buf.oldest()
	}
	if n == nil || q.taken.len() > 0 && !q.headShare.fits(q.taken.items, q.taken.bytes, n.size) {
		return nil
	}
	return n
}

// shift removes the oldest item from buf and gives it its number.
func (q *Queue[T]) shift() *node[T] {
	n := q.buf.oldest()
	q.buf.remove(n)
	q.diskEnd++
	n.seq = q.diskEnd
	if oldest := q.buf.oldest(); oldest != nil {
		q.unlink(oldest) // because the policy does not apply to it any more
	}
	return n
}

// Take waits for at least one item and appends up to limit items, in order, to buf[:0]. A limit below 1 is treated as
// 1. maxBytes bounds the total size of the returned items, except that the first item may be larger. Take never returns
// an item twice. If ctx has ended, it returns no items. Take clears buf first, so a consumer that passes its previous
// batch does not keep references to the old items while it waits.
//
// If the taken items use half of the bounds, or one larger item is taken, Take waits for an acknowledgement. If a file
// cannot be opened, Take tries again after readRetry. After the end of Run, Take returns the items in memory, and then
// an error if more items are on disk.
func (q *Queue[T]) Take(ctx context.Context, buf []T, limit int, maxBytes int64) ([]T, error) {
	clear(buf)
	buf, limit = buf[:0], max(1, limit)
	for failing := false; ; {
		if err := ctx.Err(); err != nil {
			return buf, err
		}
		failed := q.fill(limit, maxBytes)
		if failing && failed == nil {
			q.recovered()
		}
		failing = failed != nil
		batch, err := q.tryTake(buf, limit, maxBytes)
		more := q.admitMore()
		switch {
		case len(batch) > 0:
			return batch, nil
		case err != nil && !more:
			return batch, err
		case errors.Is(failed, segment.ErrClosed):
			return batch, failed
		case failed != nil:
			q.failed(failed)
			pause.For(ctx, readRetry)
			continue
		}
		select {
		case <-q.work:
		case <-ctx.Done():
		}
	}
}

// tryTake appends waiting items to buf, which must be empty.
func (q *Queue[T]) tryTake(buf []T, limit int, maxBytes int64) ([]T, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(buf) < limit {
		n := q.next()
		if n == nil || len(buf) > 0 && n.size > maxBytes {
			break
		}
		maxBytes -= n.size // if the first item is larger, maxBytes becomes negative and no other item follows
		if q.ready.len() > 0 {
			q.ready.remove(n)
		} else {
			q.shift()
			q.headEnd = n.seq
		}
		q.taken.push(n)
		buf = append(buf, n.v)
	}
	if len(buf) == 0 && q.closed {
		return buf, ErrClosed
	}
	return buf, nil
}

// admitMore accepts waiting pushes, because Take may have made room in buf, and reports whether items wait to be taken.
func (q *Queue[T]) admitMore() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admit()
	return q.ready.len() > 0 || q.headEnd < q.tail()
}

// Ack acknowledges the n oldest taken items. It panics if fewer are taken, because a caller with a wrong count would
// acknowledge items that were not delivered.
func (q *Queue[T]) Ack(n int) {
	q.report(q.acknowledge(n))
	clear(q.released)
}

// acknowledge acknowledges n items, and returns the items that became settled.
func (q *Queue[T]) acknowledge(n int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n < 0 || n > q.taken.len() {
		panic("fifo: Ack of items that are not taken")
	}
	q.stats.Acked += int64(n)
	q.released = q.released[:0]
	for range n {
		e := q.taken.oldest()
		q.taken.remove(e)
		switch {
		case !q.spilling:
			q.note(e.v, e.seq)
			q.released = append(q.released, e.v)
		case e.seq > q.durable: // otherwise it was settled when it was written
			q.note(e.v, e.seq)
			q.receipts = append(q.receipts, numbered[T]{q.opts.Receipt(e.v), e.seq})
		}
	}
	q.admit()
	if q.ready.len() > 0 || q.headEnd < q.tail() {
		q.announce() // the consumer may be waiting because it had taken its maximum
	}
	return q.released
}

// report calls OnSettled, unless items is empty.
func (q *Queue[T]) report(items []T) {
	if len(items) > 0 {
		q.opts.OnSettled(items)
	}
}

// note stores the position of an acknowledged item.
func (q *Queue[T]) note(v T, seq uint64) {
	if source, position := q.opts.Mark(v); source != "" && q.marks[source].seq < seq {
		q.marks[source] = mark{position, seq}
	}
}

package fifo

import (
	"context"
	"slices"
	"time"
)

// waiter is a push that waits for room. The goroutine that ends the wait queues the item or sets err, closes done, and
// removes the waiter from Queue.waiters.
type waiter[T any] struct {
	v    T
	size int64
	done chan struct{}
	err  error // valid when done is closed
}

// Push appends v. If memory is full, the queue spills, and if the disk is full too, the overflow policy applies. If
// Push has to wait, it waits until there is room, until ctx ends (Push then returns ctx.Err()) or until the queue is
// closed (Push then returns ErrClosed). If Push returns an error, v is not in the queue.
func (q *Queue[T]) Push(ctx context.Context, v T) error {
	w, err := q.tryPush(v, q.sizeOf(v))
	if w == nil {
		return err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return q.abandon(w, ctx.Err())
	}
}

// tryPush offers v. If v has to wait, tryPush returns a waiter.
func (q *Queue[T]) tryPush(v T, size int64) (*waiter[T], error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	if q.offer(v, size, len(q.waiters) > 0) {
		q.admit() // a merge may have made an item smaller
		q.announce()
		return nil, nil
	}
	q.stats.Blocked++
	w := &waiter[T]{v: v, size: size, done: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	q.noteBlocked()
	return w, nil
}

// admit accepts waiting pushes in order while there is room.
func (q *Queue[T]) admit() {
	for len(q.waiters) > 0 && q.offer(q.waiters[0].v, q.waiters[0].size, false) {
		close(q.waiters[0].done)
		q.waiters = slices.Delete(q.waiters, 0, 1)
		q.announce()
	}
	q.noteBlocked()
}

const (
	// blockedAfter is how long pushes must have waited before BlockedSince reports it.
	blockedAfter = time.Second
	// unblockedAfter is how long no push must have waited before BlockedSince reports that none waits. A full queue from
	// which little is taken accepts single pushes now and then. It is longer than retryMax.
	unblockedAfter = 15 * time.Second
)

// noteBlocked records whether pushes wait because the queue is full. Run causes a call after each commit.
func (q *Queue[T]) noteBlocked() {
	if !q.full || len(q.waiters) == 0 {
		return
	}
	now := time.Now()
	if now.Sub(q.blockedAt) > unblockedAfter {
		q.blockedFrom = now
	}
	q.blockedAt = now
}

// BlockedSince returns since when pushes have been waiting because memory and disk are full. It returns the zero time
// if none waits.
func (q *Queue[T]) BlockedSince() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if now.Sub(q.blockedAt) > unblockedAfter || now.Sub(q.blockedFrom) < blockedAfter {
		return time.Time{}
	}
	return q.blockedFrom
}

// Room returns about how many items of the present size memory accepts, in addition to the items for which there is
// room on disk. It is negative if memory has items that require room on disk first.
func (q *Queue[T]) Room() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, allBytes := q.inMemory()
	items, bytes := all, allBytes // that are only in memory
	if q.spilling && q.durable >= q.headEnd {
		items, bytes = q.buf.items, q.buf.bytes
	}
	room := q.bufShare.items - items
	if q.bufShare.bytes > 0 && allBytes > 0 {
		room = min(room, int(float64(q.bufShare.bytes-bytes)*float64(all)/float64(allBytes)))
	}
	return room
}

// abandon removes the waiter w and returns err. If w is no longer waiting, abandon returns the result of the push
// instead.
func (q *Queue[T]) abandon(w *waiter[T], err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return w.err
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	q.admit() // w may have blocked smaller items behind it
	return err
}

// announce wakes the consumer if it waits. Otherwise, the consumer's next wait ends at once, which is harmless.
func (q *Queue[T]) announce() { signal(q.work) }

// kick wakes Run.
func (q *Queue[T]) kick() { signal(q.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Lift removes the bounds in memory: all waiting and all later pushes are accepted. It is called when the process ends,
// so that an item that other queues have accepted is not lost in this queue.
func (q *Queue[T]) Lift() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lifted = true
	q.admit()
}

// Restore ends Lift: the bounds apply again to later pushes, which come from the producers of another configuration.
func (q *Queue[T]) Restore() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lifted, q.left = false, q.tail()
}

// Close makes waiting and later pushes fail. Items in the queue can still be taken. Calling it again has no effect.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, w := range q.waiters {
		w.err = ErrClosed
		close(w.done)
	}
	q.waiters = nil
	q.announce()
}

// offer accepts v and returns true, or returns false if the push has to wait. v is then offered again when the queue
// has changed. If behind is true, earlier pushes wait, and v may be accepted only if it does not need room.
func (q *Queue[T]) offer(v T, size int64, behind bool) bool {
	if behind {
		return q.full && q.opts.Merge != nil && q.replaceLatest(v)
	}
	if !q.spilling {
		if q.isHeldUp() {
			return false
		}
		if !q.fits(size) {
			q.begin()
			q.kick()
		}
	}
	switch {
	case q.hasRoom(size):
		q.enqueue(v, size)
		if q.spilling && !q.full && q.pressing() {
			q.kick()
		}
		return true
	case q.full:
		return q.overflow(v, size)
	case len(q.waiters) == 0: // otherwise, the first waiter has already woken Run
		q.kick()
	}
	return false
}

// fits reports whether the bounds permit one more item of this size. An empty queue accepts any item.
func (q *Queue[T]) fits(size int64) bool {
	items, bytes := q.inMemory()
	return q.lifted || items == 0 || share{q.opts.MaxItems, q.opts.MaxBytes}.fits(items, bytes, size)
}

// hasRoom reports whether buf has room for one more item of this size. While items are only on disk, half of the bounds
// is reserved for the items that are read back.
func (q *Queue[T]) hasRoom(size int64) bool {
	return q.lifted || q.buf.items == 0 || q.bufShare.fits(q.buf.items, q.buf.bytes, size) ||
		q.headEnd == q.diskEnd && q.fits(size)
}

// enqueue appends v to buf.
func (q *Queue[T]) enqueue(v T, size int64) {
	n := &node[T]{v: v, size: size}
	q.buf.push(n)
	q.link(n)
	q.stats.Pushed++
}

// Pushes wait because of HoldUp when 1/shallowPart of the bounds is in use. A longer queue uses more than its own
// memory: the ledger keeps the states of all waiting items and, if there are too many, makes the queue write them to
// disk.
const shallowPart = 4

// Once the queue has not been empty for holdUpPart times HoldUp, pushes do not wait because of HoldUp until the queue
// has been empty again.
const holdUpPart = 20

// isHeldUp reports whether a push must wait for the consumer because of HoldUp. It returns false when pushes have
// waited long enough.
func (q *Queue[T]) isHeldUp() bool {
	items, bytes := q.inMemory()
	if items == 0 && q.opts.HoldUp > 0 {
		q.busySince = time.Now()
	}
	if items == 0 || items < q.opts.MaxItems/shallowPart &&
		(q.opts.MaxBytes == 0 || bytes < q.opts.MaxBytes/shallowPart) {
		q.heldSince = time.Time{}
		return false
	}
	if q.lifted || q.opts.HoldUp <= 0 {
		return false
	}
	now := time.Now()
	if q.heldSince.IsZero() {
		q.heldSince = now
		q.kick() // Run offers the waiting items again after HoldUp
	}
	return now.Sub(q.heldSince) < q.opts.HoldUp && now.Sub(q.busySince) < holdUpPart*q.opts.HoldUp
}

// begin makes the queue spill.
func (q *Queue[T]) begin() {
	if !q.spilling {
		q.spilling, q.durable, q.heldSince = true, q.ackedUpTo(), time.Time{}
	}
}

// Persist starts writing all current items to disk and returns at once. OnSettled is called when they are on disk.
// Items for which there is no room on disk stay in memory.
func (q *Queue[T]) Persist() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.persist()
}

func (q *Queue[T]) persist() {
	if q.ackedUpTo() < q.tail() {
		q.begin()
		q.due = q.tail()
		q.kick()
	}
}

// pressing reports whether the next commit should start before the interval ends.
func (q *Queue[T]) pressing() bool {
	return len(q.waiters) > 0 || q.buf.bytes >= q.commitBytes || q.buf.items > q.bufShare.items/2 ||
		q.buf.bytes > q.bufShare.bytes/2 && q.bufShare.bytes > 0
}

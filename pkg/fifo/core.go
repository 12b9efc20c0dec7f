package fifo

import (
	"context"
	"slices"
	"sync"
)

// gapCharge replaces the size of a taken gap item, because gap items do not count against the bounds. Sizes are never
// negative.
const gapCharge = -1

// policy stores the waiting items of a queue and decides what happens when there is no room. Its methods are called
// with the core's lock held. The policy updates the ledger for waiting items.
type policy[T any] interface {
	// offer makes room for v if necessary, accepts v and returns true. If it returns false, the push has to wait, and v is
	// offered again after a change. If behind is true, earlier pushes wait for room, and v may be accepted only if it does
	// not need room.
	offer(v T, size int64, behind bool) bool
	// front returns the size of the item that pop would return. ok is false if no item waits.
	front() (size int64, ok bool)
	// pop removes and returns the oldest waiting item. charge is the size to subtract from the ledger when the item is
	// acknowledged, or gapCharge.
	pop() (v T, charge int64)
}

// ledger counts the items and bytes of a queue. It is guarded by the core's lock.
type ledger struct {
	maxItems int   // at least 1
	maxBytes int64 // 0 means no bound
	lifted   bool  // the bounds were removed

	// items is the number of waiting and taken items, excluding gap items. Invariant: items <= maxItems.
	items int
	// bytes is the total size of these items. Invariant: bytes <= maxBytes, unless items is 1 or a merge enlarged an item.
	bytes int64
	// gaps is the number of waiting and taken gap items.
	gaps int

	// These counters only grow. Invariant: items == pushed - dropped - merged - (acked without gap items).
	pushed, acked, dropped, merged, blocked int64
}

// fits reports whether the bounds permit one more item of this size. An empty queue accepts any item.
func (l *ledger) fits(size int64) bool {
	if l.items == 0 || l.lifted {
		return true
	}
	return l.items < l.maxItems && (l.maxBytes == 0 || size <= l.maxBytes-l.bytes)
}

// add and remove update the ledger for one item of this size.
func (l *ledger) add(size int64)    { l.items++; l.bytes += size }
func (l *ledger) remove(size int64) { l.items--; l.bytes -= size }

// core is the part that all queues of this package have in common: the lock, the taken items, and the waiting pushes.
// Every queue embeds a core and implements its policy.
type core[T any] struct {
	policy policy[T]     // set once
	size   func(T) int64 // set once; may be nil
	work   chan struct{} // capacity 1: wakes the consumer

	mu sync.Mutex // guards the following fields and the policy's fields; held only for short, non-blocking work
	ledger
	// taken contains the charges of the taken items, oldest first. Invariant: the sizes of taken and waiting items,
	// without gap items, add up to ledger.bytes.
	taken deque[int64]
	// waiters contains the pushes that wait, oldest first. Invariant: the policy was offered the first waiter after the
	// last change that could have made room, and did not accept it.
	waiters []*waiter[T]
	// holding suspends the policy: if there is no room, a push waits.
	holding bool
	closed  bool // invariant: if closed is true, there are no waiters
}

// waiter is a push that waits for room. The goroutine that ends the wait queues the item or sets err, closes done, and
// removes the waiter from core.waiters.
type waiter[T any] struct {
	v    T
	size int64
	done chan struct{}
	err  error // valid when done is closed
}

// init initializes c. It panics if the bounds are invalid.
func (c *core[T]) init(p policy[T], maxItems int, maxBytes int64, size func(T) int64) {
	if maxItems < 1 || maxBytes < 0 {
		panic("fifo: MaxItems must be at least 1 and MaxBytes at least 0")
	}
	c.policy, c.size, c.work = p, size, make(chan struct{}, 1)
	c.maxItems, c.maxBytes = maxItems, maxBytes
}

// sizeOf returns the size of v. It is never negative.
func (c *core[T]) sizeOf(v T) int64 {
	if c.size == nil {
		return 0
	}
	return max(0, c.size(v))
}

// Push implements [Queue].
func (c *core[T]) Push(ctx context.Context, v T) error {
	w, err := c.tryPush(v, c.sizeOf(v))
	if w == nil {
		return err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return c.abandon(w, ctx.Err())
	}
}

// tryPush offers v to the policy. If v has to wait, tryPush returns a waiter.
func (c *core[T]) tryPush(v T, size int64) (*waiter[T], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.policy.offer(v, size, len(c.waiters) > 0) {
		c.admit() // a merge may have made an item smaller
		c.announce()
		return nil, nil
	}
	c.blocked++
	w := &waiter[T]{v: v, size: size, done: make(chan struct{})}
	c.waiters = append(c.waiters, w)
	return w, nil
}

// admit accepts waiting pushes in order while there is room.
func (c *core[T]) admit() {
	for len(c.waiters) > 0 && c.policy.offer(c.waiters[0].v, c.waiters[0].size, false) {
		close(c.waiters[0].done)
		c.waiters = slices.Delete(c.waiters, 0, 1)
		c.announce()
	}
}

// Lift implements [Queue].
func (c *core[T]) Lift() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifted = true
	c.admit()
}

// abandon removes the waiter w and returns err. If w is no longer waiting, abandon returns the result of the push
// instead.
func (c *core[T]) abandon(w *waiter[T], err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiters, w)
	if i < 0 {
		return w.err
	}
	c.waiters = slices.Delete(c.waiters, i, i+1)
	c.admit() // w may have blocked smaller items behind it
	return err
}

// announce wakes the consumer if it waits. Otherwise, the consumer's next wait ends at once, which is harmless.
func (c *core[T]) announce() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// Take implements [Queue]. It clears buf first, so a consumer that passes its previous batch does not keep references
// to the old items while it waits. A limit below 1 is treated as 1. If the context has ended, Take returns no items.
func (c *core[T]) Take(ctx context.Context, buf []T, limit int, maxBytes int64) ([]T, error) {
	clear(buf)
	buf = buf[:0]
	for {
		if err := ctx.Err(); err != nil {
			return buf, err
		}
		batch, err := c.tryTake(buf, max(1, limit), maxBytes)
		if err != nil || len(batch) > 0 {
			return batch, err
		}
		select {
		case <-c.work:
		case <-ctx.Done():
		}
	}
}

// tryTake appends waiting items to buf, which must be empty.
func (c *core[T]) tryTake(buf []T, limit int, maxBytes int64) ([]T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(buf) < limit {
		size, ok := c.policy.front()
		if !ok || len(buf) > 0 && size > maxBytes {
			break
		}
		maxBytes -= size // if the first item is larger, maxBytes becomes negative and no other item follows
		v, charge := c.policy.pop()
		c.taken.push(charge)
		buf = append(buf, v)
	}
	if len(buf) == 0 && c.closed {
		return buf, ErrClosed
	}
	return buf, nil
}

// Ack implements [Queue].
func (c *core[T]) Ack(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(n)
	c.admit()
}

// release removes the n oldest taken items. It panics if fewer are taken, because a caller with a wrong count would
// acknowledge items that were not delivered.
func (c *core[T]) release(n int) {
	if n < 0 || n > c.taken.len() {
		panic("fifo: Ack of items that are not taken")
	}
	for range n {
		if charge := c.taken.pop(); charge == gapCharge {
			c.gaps--
		} else {
			c.remove(charge)
		}
	}
	c.acked += int64(n)
}

// Close implements [Queue]. Calling it again has no effect.
func (c *core[T]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, w := range c.waiters {
		w.err = ErrClosed
		close(w.done)
	}
	c.waiters = nil
	c.announce()
}

// hold suspends the policy or, if on is false, applies it again, even to pushes that already wait.
func (c *core[T]) hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding = on
	c.admit()
}

// Stats implements [Queue]. Gap items are included in Items, Taken and Acked, but not in Bytes or Pushed.
func (c *core[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Items: c.items + c.gaps, Bytes: c.bytes, Taken: c.taken.len(),
		Pushed: c.pushed, Acked: c.acked, Dropped: c.dropped, Merged: c.merged, Blocked: c.blocked,
	}
}

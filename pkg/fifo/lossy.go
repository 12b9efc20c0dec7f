package fifo

import (
	"context"
	"sync"
)

// Lossy is a [Queue] that consists of a front queue and a [Spill]. When memory and disk are full, Lossy applies the
// policy of the front queue, whereas a Spill alone would make pushes wait. Items are pushed to the front, and Run moves
// them to the Spill. While the Spill has room on disk, a push to a full front waits. The front's policy applies only if
// the Spill has no room or cannot write. All methods that Lossy does not define are the methods of the Spill.
type Lossy[T any] struct {
	*Spill[T] // receives the items of the front
	front     holder[T]
}

// holder is a queue with a policy that can be suspended.
type holder[T any] interface {
	Queue[T]
	hold(on bool)
}

var _ Queue[int] = (*Lossy[int])(nil)

// NewLossy returns a [Lossy] queue that owns front, which must be a [Ring] or [Compacting] queue, and back.
func NewLossy[T any](front Queue[T], back *Spill[T]) *Lossy[T] {
	q := &Lossy[T]{front: front.(holder[T]), Spill: back} //nolint:forcetypeassert // documented
	q.front.hold(true)
	back.onCommit = func(full bool) { q.front.hold(!full) }
	return q
}

// Run calls [Spill.Run] and moves items from the front to the Spill. When ctx ends, Run closes the queue, moves the
// items that are left in the front, even if they exceed the bounds of the Spill, and writes all items to disk.
func (q *Lossy[T]) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		q.Close()
		q.Spill.Lift()
	})()
	moving, moved := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() {
		defer moved()
		q.move(moving)
		<-ctx.Done()
	})
	err := q.Spill.Run(moving)
	group.Wait()
	return err
}

// move moves all items of the front until the front is closed and empty, and then closes the Spill. Items are moved one
// by one, because the front's policy does not apply to items that are being moved, although they use room in the front.
func (q *Lossy[T]) move(ctx context.Context) {
	defer q.Spill.Close()
	batch := make([]T, 1)
	for {
		var err error
		if batch, err = q.front.Take(ctx, batch, 1, 0); err != nil {
			return
		}
		_ = q.Spill.Push(ctx, batch[0]) // cannot fail: only move closes the Spill, and ctx ends after move
		q.front.Ack(1)
	}
}

// Push implements [Queue].
func (q *Lossy[T]) Push(ctx context.Context, v T) error { return q.front.Push(ctx, v) }

// Lift implements [Queue].
func (q *Lossy[T]) Lift() { q.front.Lift() }

// Close implements [Queue].
func (q *Lossy[T]) Close() { q.front.Close() }

// Stats implements [Queue]. An item that is being moved may be counted twice in Items and Bytes.
func (q *Lossy[T]) Stats() Stats {
	front := q.front.Stats() // read before the Spill's, so that no item is missed
	s := q.Spill.Stats()
	s.Items += front.Items
	s.Bytes += front.Bytes
	s.Dropped += front.Dropped
	s.Pushed, s.Merged, s.Blocked = front.Pushed, front.Merged, front.Blocked
	return s
}

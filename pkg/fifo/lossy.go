package fifo

import (
	"context"
	"sync"
	"sync/atomic"
)

// Lossy is a [Queue] that consists of a front queue and a [Spill]. When memory and disk are full, Lossy applies the
// policy of the front queue, whereas a Spill alone would make pushes wait. Items are pushed to the front, and Run moves
// them to the Spill. While the Spill has room on disk, a push to a full front waits. The front's policy applies only if
// the Spill has no room or cannot write. All methods that Lossy does not define are the methods of the Spill.
type Lossy[T any] struct {
	*Spill[T] // receives the items of the front
	front     holder[T]
	// full is true while the Spill has no room on disk or cannot write.
	full atomic.Bool
	// moveItems and moveBytes bound the items that are moved at a time.
	moveItems int
	moveBytes int64
}

// holder is a queue with a policy that can be suspended.
type holder[T any] interface {
	Queue[T]
	hold(on bool)
	bounds() (items int, bytes int64)
}

const (
	// moveItems and moveBytes bound the items that are moved at a time, which are at most 1/movePart of the front. Items
	// that are being moved use room in the front, but the front's policy does not apply to them. Therefore items are moved
	// one by one while the policy applies.
	moveItems = 64
	moveBytes = 1 << 20
	movePart  = 4
)

var _ Queue[int] = (*Lossy[int])(nil)

// NewLossy returns a [Lossy] queue that owns front, which must be a [Ring] or [Compacting] queue, and back.
func NewLossy[T any](front Queue[T], back *Spill[T]) *Lossy[T] {
	q := &Lossy[T]{front: front.(holder[T]), Spill: back} //nolint:forcetypeassert // documented
	items, bytes := q.front.bounds()
	q.moveItems, q.moveBytes = max(1, min(moveItems, items/movePart)), moveBytes
	if bytes > 0 {
		q.moveBytes = max(1, min(moveBytes, bytes/movePart))
	}
	q.front.hold(true)
	back.onFull = func(full bool) {
		q.full.Store(full)
		q.front.hold(!full)
	}
	return q
}

// Run calls [Spill.Run] and moves items from the front to the Spill. When ctx ends, Run closes the queue, moves the
// items that are left in the front, and writes all items to disk.
func (q *Lossy[T]) Run(ctx context.Context) error {
	moving, moved := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() {
		defer moved()
		rest := q.move(ctx)
		<-ctx.Done()
		q.moveRest(rest)
	})
	err := q.Spill.Run(moving)
	group.Wait()
	return err
}

// move moves items until ctx ends, or until the front is closed and empty. It returns the items that it took but did
// not move.
func (q *Lossy[T]) move(ctx context.Context) (rest []T) {
	var batch []T
	for {
		limit := q.moveItems
		if q.full.Load() {
			limit = 1
		}
		var err error
		if batch, err = q.front.Take(ctx, batch, limit, q.moveBytes); err != nil {
			if ctx.Err() == nil { // closed and empty
				q.Spill.Close()
			}
			return nil
		}
		for n, v := range batch {
			if q.Spill.Push(ctx, v) != nil {
				return batch[n:]
			}
			q.front.Ack(1)
		}
	}
}

// moveRest moves the remaining items, even if they exceed the bounds of the Spill.
func (q *Lossy[T]) moveRest(batch []T) {
	q.front.Close()
	q.Spill.Lift()
	for err := error(nil); err == nil; batch, err = q.front.Take(context.Background(), batch, moveItems, moveBytes) {
		for _, v := range batch {
			if q.Spill.Push(context.Background(), v) != nil { // the Spill is closed, so no items are left
				break
			}
			q.front.Ack(1)
		}
	}
	q.Spill.Close()
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

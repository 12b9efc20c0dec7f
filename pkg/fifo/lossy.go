package fifo

import (
	"context"
	"sync"
	"sync/atomic"
)

// Lossy is a [Queue] on disk that, when memory and disk are full, does what another queue's policy says, where a [Spill] alone makes
// pushes wait. Items are pushed to the other queue, the front, and moved from there to the Spill. While the Spill has room on disk
// a full front makes pushes wait; only when it has none, or its file can't be written, the front's policy applies.
//
// What Lossy does not define is that of the Spill.
type Lossy[T any] struct {
	*Spill[T] // behind the front
	front     holder[T]
	// full: the Spill has no room on disk.
	full atomic.Bool
	// moveItems and moveBytes bound what is moved at a time.
	moveItems int
	moveBytes int64
}

// holder is a queue whose policy can be suspended.
type holder[T any] interface {
	Queue[T]
	hold(on bool)
	bounds() (items int, bytes int64)
}

const (
	// moveItems and moveBytes bound what is moved at a time, and movePart is the part of the front that it may be. What is on its way
	// takes room in the front and is out of reach for its policy, so that items are moved one by one when that applies.
	moveItems = 64
	moveBytes = 1 << 20
	movePart  = 4
)

var _ Queue[int] = (*Lossy[int])(nil)

// NewLossy makes a [Lossy] queue of a [Ring] or a [Compacting] and a [Spill], both of which are its own from then on.
func NewLossy[T any](front Queue[T], back *Spill[T]) *Lossy[T] {
	q := &Lossy[T]{front: front.(holder[T]), Spill: back} //nolint:forcetypeassert // what else is given is a mistake in the program
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

// Run is [Spill.Run], and moves items from the front. When ctx ends it closes the queue, and writes to disk what is left in the
// front too, behind what the Spill has.
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

// move moves items until ctx ends, or the front is closed and empty. It gives those that it took and did not move.
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

// moveRest moves what is left, whatever the Spill's bounds are.
func (q *Lossy[T]) moveRest(batch []T) {
	q.front.Close()
	q.Spill.Lift()
	for err := error(nil); err == nil; batch, err = q.front.Take(context.Background(), batch, moveItems, moveBytes) {
		for _, v := range batch {
			if q.Spill.Push(context.Background(), v) != nil { // it was closed, so that nothing is left
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

// Stats implements [Queue]. An item that is moved at the moment may be counted twice in Items and Bytes.
func (q *Lossy[T]) Stats() Stats {
	front := q.front.Stats() // first, so that no item is missed
	s := q.Spill.Stats()
	s.Items += front.Items
	s.Bytes += front.Bytes
	s.Dropped += front.Dropped
	s.Pushed, s.Merged, s.Blocked = front.Pushed, front.Merged, front.Blocked
	return s
}

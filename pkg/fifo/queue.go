package fifo

import (
	"context"
	"errors"
)

// ErrClosed is returned by Push on a closed queue, and by Take once a closed queue is empty.
var ErrClosed = errors.New("fifo: queue is closed")

// Queue is a bounded queue between one or more producers and one consumer.
//
// The consumer takes a batch, delivers it, and acknowledges it. What was taken and not acknowledged stays in
// the queue's accounting, and no overflow policy touches it. All methods are safe for concurrent use, apart
// from Take and Ack, which belong to the one consumer.
type Queue[T any] interface {
	// Push appends v. On a full queue it does what the overflow policy says; where that is to wait, it waits
	// until there is room, ctx ends (ctx.Err()) or the queue is closed (ErrClosed). On error v was not taken up.
	// An item larger than the whole byte bound is let in when the queue is empty, so that it can't block for ever.
	Push(ctx context.Context, v T) error
	// Take waits until at least one item is there and appends up to max of them, in order, to buf[:0].
	// maxBytes bounds the sum of their sizes; the first is given whatever its size. Items that are taken and
	// not acknowledged are not given again by Take.
	Take(ctx context.Context, buf []T, max int, maxBytes int64) ([]T, error)
	// Ack releases the n oldest items that were taken.
	Ack(n int)
	// Lift takes up all pushes from then on, those that wait first, whatever the bounds are: the process ends, and an
	// item that other queues have taken must not be given up here.
	Lift()
	// Close refuses further pushes. What waits can still be taken.
	Close()
	// Stats is a consistent picture of this moment.
	Stats() Stats
}

// Stats describes a queue at one moment. Counters only grow.
type Stats struct {
	Items   int   // waiting and taken
	Bytes   int64 // their sizes
	Taken   int   // of Items, taken and not acknowledged
	Pushed  int64 // accepted by Push, in all
	Acked   int64 // acknowledged, in all
	Dropped int64 // given up by drop-oldest, in all
	Merged  int64 // merged into a later item by compact, in all
	Blocked int64 // pushes that had to wait, in all
}

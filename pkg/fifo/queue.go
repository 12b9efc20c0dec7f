package fifo

import (
	"context"
	"errors"
)

// ErrClosed is returned by Push on a closed queue, and by Take once a closed queue is empty.
var ErrClosed = errors.New("fifo: queue is closed")

// Queue is a bounded queue between one or more producers and one consumer.
//
// The consumer takes a batch, delivers it, and acknowledges it. Items that are taken and not acknowledged count
// against the bounds, and no overflow policy applies to them. All methods are safe for concurrent use, except for
// Take and Ack, which only the one consumer may call.
type Queue[T any] interface {
	// Push appends v. If the queue is full, the overflow policy applies; if the policy is to wait, Push waits until
	// there is room, ctx ends (it returns ctx.Err()) or the queue is closed (ErrClosed). After an error v is not in
	// the queue. An item larger than the whole byte bound is accepted when the queue is empty, so that it cannot
	// block forever.
	Push(ctx context.Context, v T) error
	// Take waits for at least one item and appends up to max items, in order, to buf[:0]. maxBytes bounds the sum of
	// their sizes, except that the first item may be larger. Take never returns an item twice.
	Take(ctx context.Context, buf []T, max int, maxBytes int64) ([]T, error)
	// Ack releases the n oldest items that were taken.
	Ack(n int)
	// Lift removes the bounds: all pushes that wait, and all later ones, are accepted. It is for the end of the
	// process, when an item that other queues have accepted must not be lost here.
	Lift()
	// Close makes further pushes fail. Items in the queue can still be taken.
	Close()
	// Stats returns a consistent snapshot.
	Stats() Stats
}

// Stats describes a queue at one moment. Counters only grow.
type Stats struct {
	Items   int   // waiting and taken
	Bytes   int64 // their sizes
	Taken   int   // of Items, taken and not acknowledged
	Pushed  int64 // accepted by Push
	Acked   int64 // acknowledged
	Dropped int64 // dropped by drop-oldest, or lost on disk
	Merged  int64 // merged into a later item by compact
	Blocked int64 // pushes that had to wait
}

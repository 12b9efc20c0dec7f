package fifo

import (
	"context"
	"errors"
)

// ErrClosed is returned by Push if the queue is closed, and by Take if the queue is closed and empty.
var ErrClosed = errors.New("fifo: queue is closed")

// Queue is a bounded queue between one or more producers and one consumer.
//
// The consumer takes a batch, delivers it, and acknowledges it. Taken items count against the bounds until they are
// acknowledged, but overflow policies do not apply to them. All methods are safe for concurrent use, except that only
// the consumer may call Take and Ack.
type Queue[T any] interface {
	// Push appends v. If the queue is full, the overflow policy applies. If the policy makes Push wait, Push waits until
	// there is room, until ctx ends (Push then returns ctx.Err()) or until the queue is closed (Push then returns
	// ErrClosed). If Push returns an error, v is not in the queue. An item that is larger than the byte bound is accepted
	// when the queue is empty, so that it does not wait forever.
	Push(ctx context.Context, v T) error
	// Take waits for at least one item and appends up to max items, in order, to buf[:0]. maxBytes bounds the total size
	// of the returned items, except that the first item may be larger. Take never returns an item twice.
	Take(ctx context.Context, buf []T, max int, maxBytes int64) ([]T, error)
	// Ack acknowledges the n oldest taken items.
	Ack(n int)
	// Lift removes the bounds: all waiting and all later pushes are accepted. It is called when the process ends, so that
	// an item that other queues have accepted is not lost in this queue.
	Lift()
	// Close makes waiting and later pushes fail. Items in the queue can still be taken.
	Close()
	// Stats returns a consistent snapshot.
	Stats() Stats
}

// Stats is a snapshot of a queue's numbers. The values from Pushed to Blocked are counters, which only grow.
type Stats struct {
	Items   int   // waiting and taken items
	Bytes   int64 // total size of these items
	Taken   int   // items that are taken but not acknowledged
	Pushed  int64 // items that Push accepted
	Acked   int64 // items that were acknowledged
	Dropped int64 // items that DropOldest dropped, or that were lost on disk
	Merged  int64 // items that were merged into a newer item
	Blocked int64 // pushes that had to wait
}

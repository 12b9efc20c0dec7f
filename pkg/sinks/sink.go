package sinks

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Sink delivers messages to one destination. One goroutine, the sink's Drain, calls it; calls do not overlap.
type Sink interface {
	// Connect returns nil once the destination was reached and found fit (stream or topic there, its limits
	// acceptable). The drain calls it until it succeeds, with back-off, before the first Send. An error that
	// no retry can mend is still an error: the drain reports it and goes on trying, since an operator may mend
	// the broker while the bridge runs.
	Connect(ctx context.Context) error

	// Send delivers the batch and reports on each message: results[i] is nil if the broker acknowledged
	// batch[i], and otherwise an error of one of the classes in errors.go. len(results) == len(batch).
	//
	// Order: no message may be in flight while an earlier one with the same Key is. If batch[i] fails, later
	// messages of its key are not attempted: their result is ErrNotAttempted. That holds for a Permanent failure too:
	// something may be sent in the place of that message, and has to come first.
	//
	// Send returns when every message has a result, or soon after ctx ends: then what is not known to be
	// acknowledged has an error. It keeps neither slice.
	Send(ctx context.Context, batch []*event.Message, results []error)

	// Close gives up the connection. Nothing is in flight when it is called.
	Close(ctx context.Context) error
}

// Router is a Sink whose destination has parts, topics or subjects, of which one may take no events while the others
// do. Send says so with an UnavailableError.
type Router interface {
	// Part names the part that takes m, as a path: what comes before a "/" names the larger part that it belongs to, a
	// topic for a partition. It may be the larger part as long as the other is not known, and else is the same for all
	// events of an object. Empty: it has none. It is called by the drain's goroutine alone.
	Part(m *event.Message) string
}

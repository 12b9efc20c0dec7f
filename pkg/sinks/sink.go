package sinks

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Sink delivers messages to one destination. One goroutine, the sink's Drain, calls it; calls do not overlap.
type Sink interface {
	// Connect returns nil when the destination was reached and is usable: the stream or topic exists, and its limits are
	// acceptable. Before the first Send, the drain calls it until it succeeds, with back-off. It does so after every
	// error, because an operator may fix the broker while the bridge runs.
	Connect(ctx context.Context) error

	// Send delivers the batch and reports on each message: results[i] is nil if the broker acknowledged
	// batch[i], and otherwise an error of one of the classes in errors.go. len(results) == len(batch).
	//
	// Order: no message may be in flight while an earlier one with the same Key is. If batch[i] fails, later
	// messages of its key are not attempted: their result is ErrNotAttempted. This includes Permanent
	// failures: a replacement of that message may have to be sent first.
	//
	// Send returns when every message has a result, or soon after ctx ends; messages that are not known to be acknowledged
	// then have an error. It keeps neither slice.
	Send(ctx context.Context, batch []*event.Message, results []error)

	// Close gives up the connection. Nothing is in flight when it is called.
	Close(ctx context.Context) error
}

// Router is a Sink whose destination has parts, topics or subjects, which may be unavailable one by one. Send then
// returns an UnavailableError.
type Router interface {
	// Part returns the part that takes m as a path: before a "/" is the larger part, such as the topic of a partition. It
	// returns the larger part while the smaller one is not known; otherwise it is the same for all events of an object. It
	// is empty if the destination has no parts. Only the goroutine of the drain calls it.
	Part(m *event.Message) string
}

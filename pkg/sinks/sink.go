package sinks

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Sink delivers messages to one destination. It is called by one goroutine, the goroutine of its Drain, so calls do not
// overlap.
type Sink interface {
	// Connect returns nil when the destination is connected and usable: the stream or topic exists and its limits are
	// acceptable. Before the first Send, the drain calls Connect with back-off until it succeeds. The drain does so
	// after any error, because an operator may fix the broker while the bridge runs. While the sink is connected and
	// there is nothing to send, the drain calls Connect to check the destination.
	Connect(ctx context.Context) error

	// Send delivers the batch and reports a result for each message. results[i] is nil if the broker acknowledged
	// batch[i], and ErrStored if the destination had it before; otherwise it is an error of another class in
	// errors.go. len(results) must be equal to len(batch).
	//
	// A message must not be in flight while an earlier one with the same Key is. If batch[i] fails, later messages with
	// the same key must not be attempted; their result is ErrNotAttempted. This includes Permanent failures, because a
	// replacement of the failed message may have to be sent first.
	//
	// A batch of progress events (IsProgress) contains nothing else. Each of them is written to every sequence of the
	// destination, such as a partition, that can contain events of its resource. Their results are only logged.
	//
	// Send returns when every message has a result, or soon after ctx ends. In the latter case, messages that are not
	// known to be acknowledged have an error. Send does not keep batch or results.
	Send(ctx context.Context, batch []*event.Message, results []error)

	// Part returns the part of the destination (a topic, partition or subject) that takes m, as a path. Parts can
	// become unavailable independently of each other; Send then returns an UnavailableError. The larger part, such as
	// the topic of a partition, comes before a "/". Part returns only the larger part while the smaller part is not
	// known; otherwise the result is the same for all events of an object. It returns an empty string if the
	// destination has no parts.
	Part(m *event.Message) string

	// Close closes the connection. It must not be called while messages are in flight.
	Close(ctx context.Context) error
}

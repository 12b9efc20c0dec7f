package diagnose

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Placement is where a message would go, and in which form.
type Placement struct {
	Stream, Subject string // NATS
	// Topic and Key are of Kafka. Partition is the one of Partitions that the key leads to; both are 0 if that is not
	// known.
	Topic, Key            string
	Partition, Partitions int
	// Tombstone: a record without value follows.
	Tombstone bool

	Headers []Header // in the order in which they are sent; NATS has none, there they are sorted
	// Size is that of the message in bytes as the destination counts it, with its headers: on Kafka that of a
	// compressed batch of it alone. Limit is the largest that the destination takes; 0 if that is not known.
	Size, Limit int64
	// Unknown is why what only the destination knows is not told; nil if nothing is missing.
	Unknown error
}

// Header of a message.
type Header struct{ Name, Value string }

// Previewer is implemented by sinks that can say where a message would go.
type Previewer interface {
	// Preview makes the message as Send would, and does not send it. With ask it asks the destination for what only
	// that knows, on connections of its own; it creates and changes nothing. An error means that Send would refuse the
	// message. It works on a sink that is not connected, and needs no Close.
	Preview(ctx context.Context, m *event.Message, ask bool) (Placement, error)
}

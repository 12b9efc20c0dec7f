package diagnose

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Placement is where a message would go, and in which form.
type Placement struct {
	Stream  string `json:"stream,omitempty"`
	Subject string `json:"subject,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Key     string `json:"key,omitempty"`
	// Partition is the one of the topic's Partitions that the key leads to. It is nil if it is not known.
	Partition  *int `json:"partition,omitempty"`
	Partitions int  `json:"partitions,omitempty"`
	// Tombstone is true if a record without a value follows.
	Tombstone bool `json:"tombstone,omitempty"`
	// Headers are in the order in which they are sent; those of NATS, which have no order, are sorted.
	Headers []Header `json:"headers,omitempty"`
	// Size is the size of the message in bytes as the destination counts it, with its headers: on Kafka the size of a
	// compressed batch of this message alone. Limit is the largest size that the destination accepts; 0 if it is not
	// known.
	Size  int64 `json:"size"`
	Limit int64 `json:"limit,omitempty"`
	// Unknown is the error that kept the destination from answering in full. It is nil if nothing is missing.
	Unknown error `json:"-"`
}

// Header is a header of a message.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Previewer is implemented by sinks that can say where a message would go.
type Previewer interface {
	// Preview makes the message as Send would, and does not send it. With ask it asks the destination for what only
	// that knows, on connections of its own; it creates and changes nothing. An error means that Send would refuse the
	// message. It works on a sink that is not connected, and needs no Close.
	Preview(ctx context.Context, m *event.Message, ask bool) (Placement, error)
}

package diagnose

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Placement describes where and in which form a message would be sent.
type Placement struct {
	Stream  string `json:"stream,omitempty"`
	Subject string `json:"subject,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Key     string `json:"key,omitempty"`
	// Partition is the partition that the key is mapped to, out of Partitions. It is nil if the partition is not known.
	Partition  *int `json:"partition,omitempty"`
	Partitions int  `json:"partitions,omitempty"`
	// Tombstone reports whether a record without a value follows the message.
	Tombstone bool `json:"tombstone,omitempty"`
	// Headers are in the order in which they are sent. NATS headers have no order and are sorted.
	Headers []Header `json:"headers,omitempty"`
	// Size is the size of the message in bytes as the destination counts it, including headers. For Kafka, it is the size
	// of a compressed batch that contains only this message. Limit is the largest size that the destination accepts; 0 if
	// it is not known.
	Size  int64 `json:"size"`
	Limit int64 `json:"limit,omitempty"`
	// Unknown is the error that prevented the destination from returning all information. It is nil if no information is
	// missing.
	Unknown error `json:"-"`
}

// Header is a header of a message.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Previewer is implemented by sinks that can report where a message would be sent.
type Previewer interface {
	// Preview prepares the message as Send would, but does not send it. If ask is true, Preview requests missing
	// information from the destination; it creates and changes nothing. An error means that Send would reject the message.
	// The sink need not be connected, must not be used for delivery during Preview, and need not be closed afterwards.
	Preview(ctx context.Context, m *event.Message, ask bool) (Placement, error)
}

package diagnose

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Record is a message that was read back from a destination.
type Record struct {
	event.Received
	// Place is a human-readable description of where the message is stored: a stream and a sequence number, or a topic
	// with partition and offset.
	Place string
	Key   string // the key of a Kafka record
	// Stored is the time stamp of the message in the destination: on JetStream, when it was stored; on Kafka, by default,
	// when it was sent.
	Stored time.Time
	// Behind is the number of messages in the destination that have not been passed to the handler yet.
	Behind int64
	// Foreign is the reason why the message is not a CloudEvent; nil if it is one. For a Kafka tombstone, Foreign is nil,
	// and the record has neither attributes nor data.
	Foreign error
}

// ReadOptions select the messages to read.
type ReadOptions struct {
	Since  time.Time // only messages stored since then; zero means all messages
	Follow bool      // wait for new messages; if false, stop after the messages that existed at the beginning
}

// Reader is implemented by sinks that can read the messages of their destination.
type Reader interface {
	// Read calls handle for the messages of the destination, in order. For Kafka, the order is kept within each partition,
	// and the partitions are merged by time. Read does not affect other readers: it leaves nothing in the destination
	// after it has ended, acknowledges nothing, and joins no consumer group. handle may keep the record. If handle returns
	// an error, Read stops and returns that error.
	//
	// Once Read has begun, it continues after connection failures. Before that, it returns connection failures as Connect
	// does. It returns nil after the last selected message, or soon after ctx ends. The sink need not be connected and
	// must not be used for delivery during Read. Close the sink afterwards.
	Read(ctx context.Context, o ReadOptions, handle func(*Record) error) error
}

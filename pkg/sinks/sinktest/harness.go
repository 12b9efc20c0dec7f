package sinktest

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Harness describes a kind of destination to the suite.
type Harness struct {
	// New creates a new, empty destination for one test. It registers the cleanup with t.Cleanup.
	New func(t *testing.T) Destination
	// Oversize is a size of event data, in bytes, that the destination rejects. 0 means that the destination accepts every
	// size; the test of large events is then skipped.
	Oversize int
	// OnlyContent leaves out the tests of what does not depend on the content of messages: outages and names.
	OnlyContent bool
}

// Destination is the stream, topic or file that the suite sends messages to.
//
// It may also implement Stopper, Freezer, Divider, Separator, Sequencer and Observer.
type Destination interface {
	// NewSink returns a new sink for this destination that is not connected yet. The suite closes the sink.
	NewSink(t testing.TB) sinks.Sink
	// Records returns all messages in the destination, in the destination's order (for Kafka: partition by partition, by
	// offset). It must use a client that shares no code with the sink.
	Records(t testing.TB) []Record
}

// Record is one event that was read from the destination.
type Record struct {
	// Partition is the sequence within which the destination keeps the order, for example a Kafka partition. It is empty
	// if the whole destination is one sequence.
	Partition string
	// Key is the Kafka key or the NATS subject. It is used in messages about failed tests.
	Key string
	// Attributes are the CloudEvents attributes and extensions. The names have no prefix, and the values are decoded
	// (without percent-encoding).
	Attributes map[string]string
	// Whole reports whether the record contains all attributes, as in structured mode. Otherwise they are headers.
	Whole bool
	// Data is only the payload, even if the event was sent in structured mode.
	Data []byte
}

// Stopper is a Destination whose server can be stopped and started again.
type Stopper interface {
	// Stop stops the server as in a crash or restart. It returns when the server no longer accepts connections.
	Stop(t testing.TB)
	// Start starts the server again with the same address and data. It returns when the server is ready.
	Start(t testing.TB)
}

// Freezer is a Destination that can be frozen. *Proxy implements Freezer and can be embedded.
type Freezer interface {
	// Freeze stops all traffic in both directions. Existing connections stay open, and new ones are accepted.
	Freeze()
	// Thaw ends the freeze. Delayed bytes are then forwarded.
	Thaw()
}

package sinktest

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Harness describes to the suite how to reach a kind of destination.
type Harness struct {
	// New makes a fresh, empty destination for one test. What it must end, it registers with t.Cleanup.
	New func(t *testing.T) Destination
	// Oversize is a size of an event's data, in bytes, that the destination rejects. With 0, which
	// means that it takes every size, that test is skipped.
	Oversize int
}

// Destination is one broker, or what stands for it: a stream, a topic, a file.
//
// It may implement Stopper and Freezer too.
type Destination interface {
	// NewSink returns a new sink for this destination, not yet connected. The suite closes it.
	NewSink(t testing.TB) sinks.Sink
	// Records reads back everything that the destination holds, in its own order (for Kafka: partition by
	// partition, by offset), with a client that shares no code with the sink.
	Records(t testing.TB) []Record
}

// Record is one event as the destination holds it.
type Record struct {
	// Partition names the sequence within which the destination keeps order: a Kafka partition, say. Empty
	// where the whole destination is one sequence.
	Partition string
	// Key is what the destination sorts by: the Kafka key, the NATS subject. For messages of a failed test.
	Key string
	// Attributes are the CloudEvents attributes and extensions under their own names, without a prefix,
	// decoded (percent-encoding removed).
	Attributes map[string]string
	// Data is the payload alone, also where the event travelled in structured mode.
	Data []byte
}

// Stopper is a Destination whose server can be stopped and started again.
type Stopper interface {
	// Stop ends the server as a crash or a restart would, and returns when nothing listens any more.
	Stop(t testing.TB)
	// Start starts it again, at the same address and on the same data, and returns when it serves.
	Start(t testing.TB)
}

// Freezer is a Destination that can be made to hang. *Proxy implements it; embed one.
type Freezer interface {
	// Freeze lets connections stand and new ones be accepted, but passes nothing on in either direction.
	Freeze()
	// Thaw ends the freeze: what waited is passed on.
	Thaw()
}

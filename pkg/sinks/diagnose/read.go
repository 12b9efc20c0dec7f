package diagnose

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Record is a message that was read back from a destination.
type Record struct {
	event.Received
	// Place is where it lies, for people: a stream and a sequence number, a topic with partition and offset.
	Place string
	// Stored is when the destination took it.
	Stored time.Time
	// Behind counts the messages that are there and were not handed over yet.
	Behind int64
	// Foreign says why it is no CloudEvent; nil if it is one. A Kafka tombstone is a record with neither attributes nor
	// data, and no Foreign.
	Foreign error
}

// ReadOptions say what to read.
type ReadOptions struct {
	Since  time.Time // of when it was stored; zero: everything that is there
	Follow bool      // go on with what comes; otherwise end with what was there at the beginning
}

// Reader is implemented by sinks whose destination can be read back.
type Reader interface {
	// Read hands over what the destination holds, in its order: on Kafka that of each partition, with the partitions
	// merged by time. It disturbs nobody: it leaves no trace in the destination once it has ended, acknowledges
	// nothing, and belongs to no group. The record is handle's to keep; an error of handle ends the reading, and is
	// returned.
	//
	// It goes on over failures of the connection once it has begun; before that they are returned, as Connect does. It
	// returns nil at the end of what it was asked for, or soon after ctx ends. It works on a sink that is not
	// connected, and that delivers nothing meanwhile; Close it afterwards.
	Read(ctx context.Context, o ReadOptions, handle func(*Record) error) error
}

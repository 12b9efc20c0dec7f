package statelog

import (
	"context"
	"errors"
)

// Log is a sequence of records in a broker. Positions are not negative, and grow from record to record, but not always
// by one. Methods must not be called concurrently. Several processes can read a log, and one at a time can append to
// it.
type Log interface {
	// Fence ensures that no earlier process can append any more, as far as the broker can ensure that, and returns the
	// end of the log: the position after the last record, or a later one. Removing records does not change the end.
	// Call Fence before the first Append, and after ErrConflict.
	Fence(ctx context.Context) (end int64, err error)
	// Append adds a record after the one that ends at position after. This must be the position that the last call of
	// Fence, Append or Read returned. Append returns the position after the new record. The position of the new record
	// is after or later.
	//
	// If Append returns ErrConflict, another process has appended a record or has fenced this process, or the log was
	// deleted and created again since Fence, as far as the broker can tell. The record was not written. If Append
	// returns ErrTooLarge, the broker never accepts a record of this size. After any other error, the record may have
	// been written, or may still arrive. Then either call Append again with the same arguments, or call Fence before
	// the next Append. When a repeated Append succeeds, the log contains the record exactly once.
	Append(ctx context.Context, after int64, record []byte) (end int64, err error)
	// Read calls each for the records from position from on, in order, up to the end of the log at the time of the
	// call. It returns the end. If the first of these records were removed, it begins with the first record after them.
	// If there are no records from this position on, Read returns the end as well, which is before from if the log was
	// deleted and created again. each must not keep the record. If each returns an error, Read returns it (errors.Is).
	Read(ctx context.Context, from int64, each func(position int64, record []byte) error) (end int64, err error)
	// Wait returns when the log may have a record at or after position from. It also returns nil if it cannot find out.
	Wait(ctx context.Context, from int64) error
	// Truncate removes the records before a position, immediately or later.
	Truncate(ctx context.Context, before int64) error
	// MaxRecord returns the maximum size of a record in bytes, as far as it is known, or 0.
	MaxRecord() int
	// Close releases all resources.
	Close() error
}

var (
	// ErrConflict means that another process writes to the log.
	ErrConflict = errors.New("another process writes to the state log")
	// ErrTooLarge means that a record is larger than the broker accepts.
	ErrTooLarge = errors.New("the record is too large for the broker")
)

package sinks

import (
	"errors"
	"slices"
)

// The classes of a failed delivery. A plain error, of no class, means: certainly not written, try again.
var (
	// ErrNotAttempted: an earlier message of the same key failed or was rejected, so this one was not sent. Try again.
	ErrNotAttempted = errors.New("not attempted: an earlier event of the same object was not acknowledged")
	// ErrOversize is wrapped by a Permanent error when the destination takes no message of this size.
	ErrOversize = errors.New("larger than the destination accepts")
)

// PermanentError means that the destination rejects the message, whenever it is sent: it is malformed or too large.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return "rejected: " + e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent marks err as the rejection of a message.
func Permanent(err error) error { return &PermanentError{Err: err} }

// IsPermanent reports whether err, or an error that it wraps, is a PermanentError.
func IsPermanent(err error) bool {
	var p *PermanentError
	return errors.As(err, &p)
}

// MaybeWrittenError is a failure after which the broker may have the message nevertheless: a lost
// acknowledgement, a time-out. It is tried again; the event's id makes the repetition recognisable.
type MaybeWrittenError struct{ Err error }

func (e *MaybeWrittenError) Error() string {
	return "not acknowledged, perhaps written: " + e.Err.Error()
}
func (e *MaybeWrittenError) Unwrap() error { return e.Err }

// MaybeWritten marks err as one after which the message may have been written.
func MaybeWritten(err error) error { return &MaybeWrittenError{Err: err} }

// IsMaybeWritten reports whether err, or an error that it wraps, is a MaybeWrittenError.
func IsMaybeWritten(err error) bool {
	var m *MaybeWrittenError
	return errors.As(err, &m)
}

// RejectedError is an answer of the destination that will not change soon: a wrong password, a missing right, a full
// stream. The drain asks again less and less often, while it asks a destination that is away or not ready
// every RetryInterval.
type RejectedError struct{ Err error }

func (e *RejectedError) Error() string { return e.Err.Error() }
func (e *RejectedError) Unwrap() error { return e.Err }

// Rejected marks err as an answer that will not change soon.
func Rejected(err error) error { return &RejectedError{Err: err} }

// IsRejected reports whether err, or an error that it wraps, is a RejectedError or a ConnectError with Rejected.
func IsRejected(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree: errors.As would give the first ConnectError alone
	case nil:
		return false
	case *RejectedError:
		return true
	case *ConnectError:
		return e.Rejected || IsRejected(e.Err)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), IsRejected)
	}
	return IsRejected(errors.Unwrap(err))
}

// UnavailableError is a failure of one part of the destination, a topic, partition or subject, that takes no events now
// while the connection works. The drain parks the events of that part and goes on with the others.
type UnavailableError struct {
	Destination string // as Router.Part names it, or a larger part
	Err         error
}

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable marks err as the failure of one part of the destination. If err is Rejected too, the part's events are
// parked at once, and otherwise when it lasts.
func Unavailable(destination string, err error) error {
	return &UnavailableError{Destination: destination, Err: err}
}

package sinks

import (
	"errors"
	"fmt"
)

// The classes of a failed delivery. An error of no class means that the message was certainly not written and is tried
// again.
var (
	// ErrNotAttempted: an earlier message of the same key failed or was rejected, so this one was not sent. It is tried
	// again.
	ErrNotAttempted = errors.New("not attempted: an earlier event of the same object was not acknowledged")
	// ErrOversize is wrapped by a Permanent error if the destination takes no message of this size.
	ErrOversize = errors.New("larger than the destination accepts")

	errPermanent    = errors.New("rejected")
	errMaybeWritten = errors.New("not acknowledged, perhaps written")
	errRejected     = errors.New("will not change soon")
)

// Permanent marks err as the rejection of a message, whenever it is sent: it is malformed or too large.
func Permanent(err error) error { return fmt.Errorf("%w: %w", errPermanent, err) }

// IsPermanent reports whether err wraps a Permanent error.
func IsPermanent(err error) bool { return errors.Is(err, errPermanent) }

// MaybeWritten marks err as a failure after which the broker may have the message anyway, such as a lost
// acknowledgement or a timeout. The message is sent again; its id makes the repetition recognizable.
func MaybeWritten(err error) error { return fmt.Errorf("%w: %w", errMaybeWritten, err) }

// IsMaybeWritten reports whether err wraps a MaybeWritten error.
func IsMaybeWritten(err error) bool { return errors.Is(err, errMaybeWritten) }

// Rejected marks err as an answer of the destination that will not change soon: a wrong password, a missing permission,
// a full stream. The drain tries again less and less often. It tries a destination that is away or not ready every
// RetryInterval.
func Rejected(err error) error { return rejectedError{err} }

// IsRejected reports whether err wraps a Rejected error, or a ConnectError with Rejected.
func IsRejected(err error) bool { return errors.Is(err, errRejected) }

type rejectedError struct{ error }

func (e rejectedError) Unwrap() error        { return e.error }
func (e rejectedError) Is(target error) bool { return target == errRejected }

// UnavailableError is a failure of one part of the destination, a topic, partition or subject, that takes no events now
// while the connection works. The drain parks the events of that part and continues with the others.
type UnavailableError struct {
	Destination string // as Router.Part names it, or a larger part
	Err         error
}

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable marks err as the failure of one part of the destination. If err is Rejected too, the events of the part
// are parked at once, and otherwise if the failure lasts.
func Unavailable(destination string, err error) error {
	return &UnavailableError{Destination: destination, Err: err}
}

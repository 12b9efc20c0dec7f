package sinks

import (
	"errors"
	"fmt"
)

// These errors are the classes of messages that were not delivered by this call. An error without a class means that
// the message was definitely not written and is tried again.
var (
	// ErrNotAttempted means that this message was not sent because an earlier message with the same key failed or was
	// rejected. The message is tried again.
	ErrNotAttempted = errors.New("not attempted: an earlier event of the same object was not acknowledged")
	// ErrStored means that the message was not sent because the destination already had it (see Resumer). For its
	// caller, the message is delivered.
	ErrStored = errors.New("the destination already has the event")
	// ErrOversize is wrapped by a Permanent error if the message is larger than the destination accepts.
	ErrOversize = errors.New("larger than the destination accepts")

	errPermanent    = errors.New("rejected")
	errMaybeWritten = errors.New("not acknowledged, but perhaps written")
	errRejected     = errors.New("will not change soon")
)

// Permanent marks err as the permanent rejection of a message: the destination will never accept the message, for
// example because it is malformed or too large.
func Permanent(err error) error { return fmt.Errorf("%w: %w", errPermanent, err) }

// IsPermanent reports whether err wraps a Permanent error.
func IsPermanent(err error) bool { return errors.Is(err, errPermanent) }

// MaybeWritten marks err as an unclear failure, such as a lost acknowledgement or a timeout: the broker may have the
// message anyway. The message is tried again. A Resumer then makes sure that it is not stored twice. Any other sink
// sends it again with the same id, so that the repetition can be recognized.
func MaybeWritten(err error) error { return fmt.Errorf("%w: %w", errMaybeWritten, err) }

// IsMaybeWritten reports whether err wraps a MaybeWritten error.
func IsMaybeWritten(err error) bool { return errors.Is(err, errMaybeWritten) }

// Rejected marks err as an answer of the destination that will not change soon, such as a wrong password, a missing
// permission or a full stream. The drain increases the pause between attempts up to MaxBackoff. If the destination is
// unavailable or not ready, the pause is at most RetryInterval.
func Rejected(err error) error { return rejectedError{err} }

// IsRejected reports whether err wraps a Rejected error or a ConnectError whose Rejected field is true.
func IsRejected(err error) bool { return errors.Is(err, errRejected) }

type rejectedError struct{ error }

func (e rejectedError) Unwrap() error        { return e.error }
func (e rejectedError) Is(target error) bool { return target == errRejected }

// UnavailableError is the failure of one part of the destination (a topic, partition or subject) that takes no events
// now, although the connection works. The drain parks the events of that part and continues with the other parts.
type UnavailableError struct {
	Destination string // the part that Sink.Part returns, or a larger part that contains it
	Err         error
}

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable marks err as the failure of one part of the destination. The drain parks the events of that part. It does
// so immediately if err is also Rejected, and otherwise only if the failure lasts.
func Unavailable(destination string, err error) error {
	return &UnavailableError{Destination: destination, Err: err}
}

package files

import (
	"errors"
	"fmt"
)

// Format is the number of the format of the state: of the checkpoint, the spills, the parked events, the audit journal
// and the state log. They have one number, because a restart needs all of them to determine what to send. Each of them
// contains the number. Increase Format when the format of any of them changes incompatibly.
const Format = 1

// NewerFormatError means that a newer version of this program has written a part of the state. Whatever finds it has
// changed nothing.
type NewerFormatError struct {
	What   string // a path, or the state log
	Format int
}

// CheckFormat returns a NewerFormatError if this program does not know the format of a part of the state.
func CheckFormat(what string, format int) error {
	if format <= Format {
		return nil
	}
	return NewerFormatError{what, format}
}

// IsNewerFormat reports whether err is a NewerFormatError.
func IsNewerFormat(err error) bool {
	_, newer := errors.AsType[NewerFormatError](err)
	return newer
}

func (e NewerFormatError) Error() string { return e.Problem() + ": " + e.Remedy() }

// Problem returns the error without the remedy.
func (e NewerFormatError) Problem() string {
	return fmt.Sprintf(
		"%s has format %d, which a newer version has written; this version knows format %d, and has changed "+
			"nothing",
		e.What,
		e.Format,
		Format,
	)
}

// Remedy returns what to do.
func (e NewerFormatError) Remedy() string {
	return "run the newer version again; or move the state away (state.path, and the stream or topic of state.log) and " +
		"start this version again: it sends all objects as an initial list, and does not send the events that waited " +
		"there, nor deletions that it has not seen"
}

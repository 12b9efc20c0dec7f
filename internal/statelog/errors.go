package statelog

import "errors"

var (
	// ErrDamaged means that a record does not have the format of this package, or does not match its checksum.
	ErrDamaged = errors.New("damaged record in the state log")
	// ErrForeign means that the log belongs to another installation or cluster.
	ErrForeign = errors.New("the state log belongs to another installation or cluster; configure another log")
	// ErrIncomplete means that commits are missing: the log was purged, deleted or damaged.
	ErrIncomplete = errors.New("the state log is incomplete")
	// ErrDiverged means that the local copy was changed without the log, and that the log is not empty.
	ErrDiverged = errors.New("the checkpoint was changed while state.log was not configured, so the state log has an " +
		"older state; remove its stream or topic to continue with the checkpoint")
	// ErrBehind means that the local copy does not have the last commit of the log, or that it is unknown whether the
	// log has the last commit. Call Writer.Sync.
	ErrBehind = errors.New("the local copy and the state log differ")
)

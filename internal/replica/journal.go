package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// errNoTerm is the error of changes while this process does not lead.
var errNoTerm = fmt.Errorf("%w: this process does not lead", statelog.ErrConflict)

// journal implements checkpoint.Log with the writer of a term. The store calls its methods one at a time. All other
// uses must be in a function that Store.Exclusively calls.
type journal struct {
	log      *patientLog
	writer   *statelog.Writer
	over     error         // why this process does not lead; nil while it leads
	ended    chan struct{} // closed when the term has ended by itself; replaced by Lead
	appended func()        // called when a commit is in the log
}

// Sync implements checkpoint.Log.
func (j *journal) Sync() error {
	return j.call(context.Background(), func(ctx context.Context) error { return j.writer.Sync(ctx) })
}

// Append implements checkpoint.Log.
func (j *journal) Append(pairs []statelog.Pair) (at statelog.Point, err error) {
	err = j.call(context.Background(), func(ctx context.Context) (err error) {
		at, err = j.writer.Append(ctx, pairs)
		return err
	})
	if err == nil {
		j.appended()
	}
	return at, err
}

// call calls a method of the writer, with a context that ends when the broker does not respond.
func (j *journal) call(ctx context.Context, method func(context.Context) error) error {
	if j.over != nil {
		return j.over
	}
	ctx, stop := j.log.limit(ctx)
	defer stop()
	err := method(ctx)
	if isFinal(err) {
		j.over = err
		close(j.ended)
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errSilent) {
		err = fmt.Errorf("%w for %v: %w", errSilent, j.log.patience, err)
	}
	return err
}

// isFinal reports whether an error means that this process must not use the log, or must not write to it any more.
func isFinal(err error) bool {
	return errors.Is(err, statelog.ErrConflict) || errors.Is(err, statelog.ErrForeign) ||
		errors.Is(err, statelog.ErrNewer) || errors.Is(err, statelog.ErrDiverged)
}

// errSilent is the cause with which patientLog ends a context.
var errSilent = errors.New("the broker of the state log has not responded")

// patientLog is a log that notices whether there is progress.
type patientLog struct {
	statelog.Log

	patience time.Duration
	timer    *time.Timer // nil if there is no limit
}

// limit returns a context that ends when no record was written or read for the patience. stop must be called.
func (l *patientLog) limit(ctx context.Context) (limited context.Context, stop func()) {
	limited, cancel := context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(l.patience, func() { cancel(errSilent) })
	return limited, func() {
		l.timer.Stop()
		l.timer = nil
		cancel(nil)
	}
}

func (l *patientLog) progress() {
	if l.timer != nil {
		l.timer.Reset(l.patience)
	}
}

// Append implements statelog.Log.
func (l *patientLog) Append(ctx context.Context, after int64, record []byte) (end int64, err error) {
	if end, err = l.Log.Append(ctx, after, record); err == nil {
		l.progress()
	}
	return end, err
}

// Read implements statelog.Log.
func (l *patientLog) Read(
	ctx context.Context, from int64, each func(position int64, record []byte) error,
) (end int64, err error) {
	return l.Log.Read(ctx, from, func(position int64, record []byte) error {
		l.progress()
		return each(position, record)
	})
}

package replica

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// errNoTerm is the error of changes while this process does not lead.
var errNoTerm = fmt.Errorf("%w: this process does not lead", statelog.ErrConflict)

// journal implements checkpoint.Log with the writer of a term. The store calls its methods one at a time. All other
// uses must be in a function that Store.Exclusively calls.
//
// If the broker does not respond, the journal detaches the checkpoint: the file goes on without the log (Point.Unsent),
// and the journal does not use the writer until Copy.attach has sent what has changed.
type journal struct {
	log      *patientLog
	copy     statelog.Copy
	writer   *statelog.Writer
	logger   *slog.Logger
	over     error         // why this process does not lead; nil while it leads
	ended    chan struct{} // closed when the term has ended by itself; replaced by Lead
	appended func()        // called when a commit is in the log
	detached func()        // called when the checkpoint is detached
	// unsaid is the name of changes that the log has received, if no claim says so yet. If the checkpoint is detached
	// again before that, the next changes get the same name, so that the next claim is about both.
	unsaid string
}

// Sync implements checkpoint.Log.
func (j *journal) Sync() error {
	if j.over != nil || j.copy.Point().Unsent != "" {
		return j.over
	}
	err := j.call(context.Background(), func(ctx context.Context) error { return j.writer.Sync(ctx) })
	if errors.Is(err, errSilent) && j.writer.CanDetach() {
		return nil // Append detaches the checkpoint
	}
	return err
}

// Append implements checkpoint.Log.
func (j *journal) Append(pairs []statelog.Pair) (statelog.Point, error) {
	before := j.copy.Point()
	if j.over != nil || before.Unsent != "" {
		return before, j.over
	}
	var at statelog.Point
	err := j.call(context.Background(), func(ctx context.Context) (err error) {
		at, err = j.writer.Append(ctx, pairs)
		return err
	})
	switch {
	case err == nil:
		j.appended()
	case errors.Is(err, errSilent), errors.Is(err, statelog.ErrBehind): // ErrBehind: Sync has failed
		j.logger.Warn("state log unavailable, continuing without it: until its broker is back, only this replica has what "+
			"changes, and another one that takes over reads it from the API server again", "err", err)
		j.detached()
		at, err = before, nil
		at.Unsent = cmp.Or(j.unsaid, rand.Text())
	}
	return at, err
}

// call calls a method of the writer, with a context that ends when the broker does not respond.
func (j *journal) call(ctx context.Context, method func(context.Context) error) error {
	if j.over != nil {
		return j.over
	}
	return j.note(j.log.try(ctx, method))
}

// note ends the term if an error of the writer means that it is over.
func (j *journal) note(err error) error {
	if isFinal(err) && j.over == nil {
		j.over = err
		close(j.ended)
	}
	return err
}

// isFinal reports whether an error means that this process must not use the log, or must not write to it any more.
func isFinal(err error) bool {
	return errors.Is(err, statelog.ErrConflict) || errors.Is(err, statelog.ErrForeign) ||
		files.IsNewerFormat(err) || errors.Is(err, statelog.ErrDiverged)
}

// errSilent is the cause with which patientLog ends a context.
var errSilent = errors.New("the broker of the state log has not responded")

// patientLog is a log that notices whether there is progress.
type patientLog struct {
	statelog.Log

	patience time.Duration
	timer    *time.Timer // nil if there is no limit
}

// try calls a function with a context that ends when no record was written or read for the patience. An error that ends
// the term is returned as it is, even if it was late: the broker has responded.
func (l *patientLog) try(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.timer = time.AfterFunc(l.patience, func() { cancel(errSilent) })
	err := call(ctx)
	l.timer.Stop()
	l.timer = nil
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errSilent) && !isFinal(err) {
		err = fmt.Errorf("%w for %v: %w", errSilent, l.patience, err)
	}
	return err
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

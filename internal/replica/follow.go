package replica

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Follow applies the log to the checkpoint until ctx ends, and then returns nil. If this process leads, its term ends
// first. ErrForeign and files.NewerFormatError mean that this process must not use the log. All other errors are
// logged, and Follow tries again. If commits are missing in the log (statelog.ErrIncomplete), the checkpoint stays as
// it is until the leader has written everything again.
func (c *Copy) Follow(ctx context.Context) error {
	c.resign()
	defer c.behind.Store(unknown)
	f := statelog.NewFollower(c.log, exclusive{c.store.Copy(), c}, c.claim)
	r := newRetries(c.logger, c.timing.retry)
	for {
		err := f.Read(ctx)
		c.incomplete.Store(errors.Is(err, statelog.ErrIncomplete))
		if err == nil {
			r.after(nil)
			c.missed.Store(false)
			c.behind.Store(int64(f.Behind()))
			c.wasReady.Store(c.wasReady.Load() || c.Ready())
			if !c.Ready() && c.Behind() != unknown {
				continue // it may be up to date by now
			}
			if err = f.Wait(ctx); err == nil {
				continue
			}
		}
		c.behind.Store(unknown)
		switch {
		case isFinal(err):
			return err
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, statelog.ErrIncomplete):
			c.missed.Store(!c.store.Copy().Point().Own)
		}
		pause.For(ctx, r.after(err))
	}
}

// exclusive is a copy that is changed only while the store runs no transaction.
type exclusive struct {
	statelog.Copy

	of *Copy
}

// Apply implements statelog.Copy.
func (e exclusive) Apply(pairs []statelog.Pair, at statelog.Point) error {
	err := e.of.store.Exclusively(func() error { return e.Copy.Apply(pairs, at) })
	if err == nil {
		e.of.noteCommit()
	}
	return err
}

// Reset implements statelog.Copy.
func (e exclusive) Reset() error { return e.of.store.Exclusively(e.Copy.Reset) }

// retries logs when attempts begin to fail and when they succeed again, and chooses the pauses between them.
type retries struct {
	logger *slog.Logger
	pauses *backoff.ExponentialBackOff
	last   error // of the last attempt
}

func newRetries(logger *slog.Logger, longest time.Duration) *retries {
	return &retries{logger: logger, pauses: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(longest/50),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(longest),
		backoff.WithMaxElapsedTime(0), // never give up
	)}
}

// after returns the pause after an attempt, which is 0 if the attempt has succeeded.
func (r *retries) after(err error) time.Duration {
	last := r.last
	if r.last = err; err == nil {
		if last != nil {
			r.logger.Info("state log can be used again")
		}
		r.pauses.Reset()
		return 0
	}
	if last == nil || errors.Is(last, statelog.ErrIncomplete) != errors.Is(err, statelog.ErrIncomplete) {
		r.logger.Warn("cannot use the state log, retrying", "err", err)
	}
	return r.pauses.NextBackOff()
}

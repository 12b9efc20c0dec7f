package replica

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Lead claims the log, reads the rest of it into the checkpoint, and prepares the checkpoint for an engine
// (checkpoint.Store.TakeOver). After that, the store can be changed until the term ends. If this process leads already,
// a new term begins. Even if Lead fails, the previous leader may not be able to write any more.
//
// statelog.ErrIncomplete means that commits may be missing in the checkpoint, because the log was purged, deleted or
// damaged. Another process may have a better checkpoint. If acceptLoss is true, Lead logs this error instead, and
// writes the checkpoint to the log as it is, or empty if it is not complete. ErrForeign and files.NewerFormatError mean
// that this process must not use the log. ErrConflict means that another process has claimed the log meanwhile. After
// any other error, call Lead again. Lead may wait for the broker until ctx ends.
func (c *Copy) Lead(ctx context.Context, acceptLoss bool) error {
	c.resign()
	c.part = nil
	w := statelog.NewWriter(c.log, c.store.Copy(), c.currentClaim())
	err := c.store.Exclusively(func() error {
		err := w.Claim(ctx, acceptLoss)
		if err == nil {
			c.journal.writer, c.journal.over, c.journal.ended, c.journal.unsaid = w, nil, make(chan struct{}), ""
		}
		return err
	})
	if err == nil {
		err = c.store.TakeOver()
	}
	if err != nil {
		c.resign()
		return err
	}
	if w.Term().Installation == "" { // a new log
		c.logger.Info("state log is empty, starting without a state: each sink is sent an initial list")
		c.claim.Installation = c.store.Installation()
		return c.Lead(ctx, acceptLoss)
	}
	if problem := w.Problem(); problem != nil {
		c.logger.Error("state log has lost commits, continuing with the local checkpoint", "err", problem)
	}
	c.logger.Info("leading: this process writes the state log", "epoch", w.Term().Epoch)
	c.leads.Store(true)
	c.noteCommit()
	c.behind.Store(0)
	c.wasReady.Store(true)
	return nil
}

// SetConfiguration sets the hash of the configuration that this process has from now on. If this process leads, the log
// names the configuration when SetConfiguration returns nil. After an error, and while the broker is unavailable,
// Maintain tries again.
func (c *Copy) SetConfiguration(ctx context.Context, hash string) error {
	c.mu.Lock()
	c.configuration = hash
	c.mu.Unlock()
	if !c.leads.Load() {
		return nil
	}
	return c.store.Exclusively(func() error { return c.rename(ctx) })
}

// Reach returns nil if the log has everything that this process has, and can be written now. It appends a commit
// without changes, because nothing else shows whether the broker of a log that does not change is available.
func (c *Copy) Reach(ctx context.Context) error {
	return c.store.Exclusively(func() error {
		if c.isDetached() {
			return errSilent
		}
		err := c.journal.call(ctx, func(ctx context.Context) error { return c.journal.writer.Touch(ctx) })
		if err == nil {
			c.noteCommit()
		}
		return err
	})
}

func (c *Copy) currentClaim() statelog.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.claim
	claim.Configuration = c.configuration
	return claim
}

// rename makes the log name the configuration of this process, and the changes that the log has received. While the
// checkpoint is detached, it does nothing.
func (c *Copy) rename(ctx context.Context) error {
	claim := c.currentClaim()
	if c.isDetached() || c.journal.over != nil {
		return c.journal.over
	}
	before := c.journal.writer.Term()
	if before.Configuration == claim.Configuration && before.Sent == claim.Sent {
		return nil
	}
	c.journal.unsaid = "" // even after an error, the log may have the claim
	err := c.journal.call(ctx, func(ctx context.Context) error {
		return c.journal.writer.Rename(ctx, claim.Configuration, claim.Sent)
	})
	if err == nil && before.Configuration != claim.Configuration {
		c.logger.Info("state log names the changed configuration", "epoch", c.journal.writer.Term().Epoch)
	}
	return err
}

// Maintain does what a leader must do beside its transactions. It writes everything again if the log has grown enough
// or was purged. It completes transactions whose result is unknown, and detects that another process has claimed the
// log. If nothing changes, it appends a commit at least once a minute, so the time of the last commit shows whether the
// log can be written. It returns nil when ctx ends, which does not end the term. It returns an error when the term has
// ended: statelog.ErrConflict, ErrForeign or files.NewerFormatError. All other errors are logged, and Maintain tries
// again.
func (c *Copy) Maintain(ctx context.Context) error {
	r := newRetries(c.logger, c.timing.retry)
	for checked := time.Now(); ctx.Err() == nil; {
		check := time.Since(checked) >= c.timing.check
		more, err := c.step(ctx, check)
		switch {
		case isFinal(err):
			c.behind.Store(unknown)
			c.leads.Store(false)
			return err
		case ctx.Err() != nil:
			continue
		case err == nil && check:
			checked = time.Now()
		}
		pause := r.after(err)
		if err == nil && !more {
			pause = c.timing.pause
		}
		select {
		case <-ctx.Done():
		case <-c.journal.ended: // the next step returns the reason
		case <-time.After(pause):
		}
	}
	return nil
}

// step does one step of Maintain. Until it returns, changes of the store wait, except while the checkpoint is detached.
func (c *Copy) step(ctx context.Context, check bool) (more bool, err error) {
	if c.isDetached() {
		return true, c.attach(ctx)
	}
	err = c.store.Exclusively(func() error {
		if more = c.isDetached(); more { // it is since a moment ago
			return nil
		}
		if err := c.rename(ctx); err != nil {
			return err
		}
		return c.journal.call(ctx, func(ctx context.Context) (err error) {
			if check {
				if err := c.check(ctx); err != nil {
					return err
				}
			}
			more, err = c.journal.writer.Refresh(ctx)
			return err
		})
	})
	return more, err
}

// check examines the log, and appends a commit if there was none since the last check.
func (c *Copy) check(ctx context.Context) error {
	complete, err := c.journal.writer.Check(ctx)
	if err != nil {
		return err
	}
	if !complete {
		c.logger.Warn("state log was purged, writing everything again")
	}
	if time.Since(time.UnixMilli(c.committed.Load())) < c.timing.check {
		return nil
	}
	if err = c.journal.writer.Touch(ctx); err == nil {
		c.noteCommit()
	}
	return err
}

// partBytes is the size of the parts in which events are sent to the log. If everything that is left is not larger,
// changes of the store wait until it is sent.
const partBytes = 1 << 20

// attach sends the next part of what the log does not have.
func (c *Copy) attach(ctx context.Context) error {
	w := c.journal.writer
	if err := c.unlocked(ctx, w.Complete); err != nil {
		return err
	}
	err := c.store.Exclusively(func() (err error) {
		if err = c.noteSent(w.Point()); err != nil || !c.isDetached() {
			return err
		}
		if c.part, err = c.store.Unsent(partBytes); err != nil || !c.part.Last || c.part.Bytes > partBytes {
			return err
		}
		if err = c.journal.call(ctx, c.appendPart); err != nil {
			return err
		}
		return c.noteSent(w.Point())
	})
	if err == nil && c.part != nil {
		err = c.unlocked(ctx, c.appendPart)
	}
	return err
}

func (c *Copy) appendPart(ctx context.Context) error {
	_, err := c.journal.writer.Append(ctx, c.part.Pairs)
	return err
}

// noteSent notes in the file what the log has, if at is a later commit than the one that the file has noted.
func (c *Copy) noteSent(at statelog.Point) error {
	if before := c.store.Copy().Point(); at.Number > before.Number {
		if err := c.store.Sent(c.part, at); err != nil {
			return err
		}
		if c.noteCommit(); !c.isDetached() {
			c.claim.Sent, c.journal.unsaid = before.Unsent, before.Unsent // the next step says so in the log
			c.logger.Info("state log has all changes again")
		}
	}
	c.part = nil
	return nil
}

// unlocked calls a method of the writer while changes of the store do not use the writer.
func (c *Copy) unlocked(ctx context.Context, method func(context.Context) error) error {
	err := c.journal.log.try(ctx, method)
	return c.store.Exclusively(func() error { return c.journal.note(err) })
}

// handOver sends what the log does not have at the end of a term. It returns an error if the term has ended by itself.
// If the broker does not respond, it gives up soon, so that the stop is not delayed.
func (c *Copy) handOver(ctx context.Context) error {
	if !c.isDetached() {
		return c.store.Exclusively(func() error { return c.journal.over }) // Maintain may have ended before it noticed
	}
	soon, cancel := context.WithTimeout(ctx, c.timing.patience/4)
	defer cancel()
	err := c.unlocked(soon, c.journal.writer.Complete)
	for c.isDetached() && err == nil {
		err = c.attach(ctx)
	}
	if err == nil || isFinal(err) {
		return err
	}
	c.logger.Warn("the last changes are only in the directory of this replica, because the state log is unavailable: "+
		"the log receives them if this replica leads next, and otherwise they are read from the API server again", "err", err)
	return nil
}

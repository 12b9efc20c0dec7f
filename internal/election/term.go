package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Term is the time in which this process leads. Its methods are safe for concurrent use.
type Term struct {
	config Config
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	begun  chan struct{} // closed by the first renewal
	before Vacancy       // set before begun is closed

	mu      sync.Mutex
	renewed time.Time   // start of the last successful renewal; zero if this process does not hold the Lease
	overdue *time.Timer // calls checkRenewal; nil before the first renewal
	lost    error       // why the Lease is not renewed anymore, or nil
}

// Vacancy is the time before a term in which no process led, as far as this process knows.
type Vacancy struct {
	Reason Reason
	// Since is when this process noticed the last change of the Lease before the term: that it was released or deleted, or
	// the last renewal before it expired. If this process has read the Lease only once, it is the time of that.
	Since time.Time
}

// Reason is the reason why a process could take the Lease.
type Reason string

// The reasons.
const (
	Start    Reason = "start"    // no process held the Lease since this process started
	Released Reason = "released" // the previous leader has released the Lease, or it was deleted
	Expired  Reason = "expired"  // the previous leader did not renew the Lease
)

var errOver = errors.New("the term is over")

func newTerm(ctx context.Context, config Config, log *slog.Logger) *Term {
	t := &Term{config: config, log: log, begun: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	return t
}

// Context returns a context that ends when the Lease is lost, or when the context of [Candidate.Lead] ends. In the
// second case, the Lease is renewed until the caller's function has returned. [context.Cause] returns the reason.
func (t *Term) Context() context.Context { return t.ctx }

// Before returns the vacancy that the term has ended.
func (t *Term) Before() Vacancy { return t.before }

// Valid reports whether the Lease cannot have expired for others: the last successful renewal began less than
// LeaseDuration ago. Call Valid directly before each write to a destination that cannot fence. If the Lease is not
// renewed, Context ends after RenewDeadline, but Valid returns true until LeaseDuration has passed, so that the caller
// can complete its work.
func (t *Term) Valid() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.renewed) < t.config.LeaseDuration
}

// renew records a successful renewal that began at start. The first one begins the term.
func (t *Term) renew(start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != nil {
		return
	}
	t.renewed = start
	wait := time.Until(start.Add(t.config.RenewDeadline))
	if t.overdue == nil {
		t.overdue = time.AfterFunc(wait, t.checkRenewal)
		close(t.begun)
	} else {
		t.overdue.Reset(wait)
	}
}

// checkRenewal ends the term if the Lease was not renewed for RenewDeadline.
func (t *Term) checkRenewal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.renewed) >= t.config.RenewDeadline {
		t.end(fmt.Errorf("the lease was not renewed for %s", t.config.RenewDeadline))
	}
}

// lose ends the term because this process does not hold the Lease anymore. Without a term, it does nothing.
func (t *Term) lose(reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.overdue != nil {
		t.renewed = time.Time{}
		t.end(reason)
	}
}

// end makes the Lease lost. It must be called with mu held.
func (t *Term) end(reason error) {
	if t.lost == nil {
		t.lost = reason
		t.log.Warn("lease lost, stopping", "err", reason)
		t.cancel(reason)
	}
}

// lostBy returns why the Lease is not renewed anymore, or nil.
func (t *Term) lostBy() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// hasBegun reports whether this process has become the leader.
func (t *Term) hasBegun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overdue != nil
}

// close ends a term whose work has ended.
func (t *Term) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = time.Time{}
	if t.overdue != nil {
		t.overdue.Stop()
	}
	if t.lost == nil {
		t.lost = errOver
	}
	t.cancel(errOver)
}

package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Term is the time in which this process should lead. It is implemented by *election.Term.
type Term interface {
	// Context ends when the process must stop reading.
	Context() context.Context
	// Valid reports whether no other process can have been chosen yet.
	Valid() bool
}

// Terms contains what Run requires.
type Terms struct {
	// Elect calls lead whenever this process is chosen, until ctx ends. It returns when lead has returned. See
	// election.Candidate.Lead.
	Elect func(ctx context.Context, lead func(Term)) error
	// Cluster returns the uid of the cluster, or an empty string if it cannot be found out.
	Cluster func(ctx context.Context) (string, error)
	// Engine runs an engine until ctx ends.
	Engine func(ctx context.Context, store *checkpoint.Store, rights Rights) error
}

// Rights tells an engine what it may do in its term.
type Rights struct {
	// Leads reports whether no other process can lead yet.
	Leads func() bool
	// Linger is closed when an engine that must not read any more should stop delivering too: when another process leads,
	// when this process stops, or when it can be chosen again because the API server is available. If the API server stays
	// unavailable, the engine is the only one that can deliver.
	Linger <-chan struct{}
}

// Run follows the log, and runs an engine whenever this process is chosen, until ctx ends. A lost term does not end
// Run. Run returns an error if an engine fails for another reason, or if the process must not use the log.
func (c *Copy) Run(ctx context.Context, o Terms) error {
	ctx, cancel := context.WithCancel(ctx) // without a cause, which requests would return
	defer cancel()
	failure := make(chan error, 1)
	fail := func(err error) {
		select {
		case failure <- err:
		default:
		}
		cancel()
	}
	if err := c.identify(ctx, o); err != nil {
		return err
	}
	stop := c.follow(ctx, fail)
	err := o.Elect(ctx, func(t Term) {
		stop()
		if err := c.term(ctx, t, o); err != nil {
			fail(err)
		}
		stop = c.follow(ctx, fail)
	})
	stop()
	select {
	case err = <-failure:
	default:
	}
	return err
}

// identify asks for the uid of the cluster before the log is read, so that nothing of another cluster's log is copied.
// If the API server does not answer soon, the process follows the log anyway: term asks again.
func (c *Copy) identify(ctx context.Context, o Terms) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.patience)
	defer cancel()
	uid, err := o.Cluster(ctx)
	if err != nil {
		return nil // term reports it
	}
	return c.setCluster(uid)
}

// setCluster notes the uid of the cluster. If the checkpoint belongs to another cluster, it is discarded if it is a
// copy of a log, and quarantined otherwise.
func (c *Copy) setCluster(uid string) error {
	if uid == "" {
		return nil
	}
	c.claim.Cluster = uid
	in := c.store.ClusterUID()
	if in == "" || in == checkpoint.UnknownCluster || in == uid {
		return nil
	}
	c.claim.Installation = ""
	if c.store.Copy().Point().Number == 0 {
		return c.store.Exclusively(func() error { return c.store.LeaveCluster(uid) })
	}
	c.logger.Warn("the checkpoint is a copy of the state log of another cluster, discarding it", "was", in, "is", uid)
	return c.store.Exclusively(c.store.Copy().Reset)
}

// follow calls Follow in another goroutine. stop ends it.
func (c *Copy) follow(ctx context.Context, fail func(error)) (stop func()) {
	following, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Follow(following); err != nil {
			fail(fmt.Errorf("state.log: %w", err))
		}
	}()
	return func() {
		end()
		<-done
	}
}

// term leads for one term. ctx ends when the process stops. term returns an error if the process cannot continue.
func (c *Copy) term(ctx context.Context, t Term, o Terms) error {
	if uid, err := o.Cluster(t.Context()); err != nil {
		c.logger.Warn("cannot read the uid of the cluster, not leading", "err", err)
		return nil
	} else if err := c.setCluster(uid); err != nil {
		return err
	}
	switch err := c.Lead(t.Context(), c.acceptsLoss()); {
	case err == nil:
	case isFinal(err) && !errors.Is(err, statelog.ErrConflict):
		return fmt.Errorf("state.log: %w", err)
	default:
		if errors.Is(err, statelog.ErrIncomplete) {
			c.refuse()
		}
		c.logger.Warn("cannot use the state log, not leading", "err", err)
		return nil
	}
	c.mu.Lock()
	c.refused = time.Time{}
	c.mu.Unlock()
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	maintaining, end := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan error, 1)
	go func() {
		err := c.Maintain(maintaining)
		stop()
		over <- err
	}()
	ended := c.journal.ended
	leads := func() bool {
		select {
		case <-ended:
			return false
		default:
			return t.Valid()
		}
	}
	lingering, forget := context.WithCancel(ctx)
	defer forget()
	err := o.Engine(reading, c.store, Rights{leads, c.linger(lingering, reading, ended, o)})
	end()
	lost := <-over
	if lost == nil {
		lost = c.handOver(context.WithoutCancel(ctx))
	}
	if errors.Is(lost, statelog.ErrConflict) {
		c.logger.Warn("another process leads now", "err", lost)
		return nil // the engine could not commit any more
	} else if lost != nil {
		return fmt.Errorf("state.log: %w", lost)
	}
	c.complete()
	return err
}

// complete writes the rest of the content to the log if the log does not contain all of it yet. Otherwise, the next
// leader would wait for this process, and at last continue without the rest.
func (c *Copy) complete() {
	for c.NotReady() != nil {
		if _, err := c.step(context.Background(), false); err != nil {
			c.logger.Warn("stopping, although state.log does not contain the whole state yet", "err", err)
			return
		}
	}
}

// linger returns Rights.Linger. reading ends when the engine must not read any more.
func (c *Copy) linger(ctx, reading context.Context, ended <-chan struct{}, o Terms) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-reading.Done()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ended:
				return
			case <-time.After(c.timing.pause):
				if _, err := o.Cluster(ctx); err == nil {
					return
				}
			}
		}
	}()
	return done
}

// refuse notes that Lead has failed because the log has lost commits.
func (c *Copy) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.IsZero() {
		c.refused = time.Now()
	}
}

// acceptsLoss reports whether this process should lead even if the log has lost commits. A process whose copy was up to
// date, or has changes that the log did not have, writes its copy to the log at once. Any other process lets others try
// first.
func (c *Copy) acceptsLoss() bool {
	if c.wasUpToDate() || c.isDetached() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.refused.IsZero() && time.Since(c.refused) >= c.lossPause()
}

// wasUpToDate reports whether the copy was up to date when the log lost commits.
func (c *Copy) wasUpToDate() bool { return c.wasReady.Load() && !c.missed.Load() }

// lossPause returns how long a process that cannot lead without a loss lets others try. It is longer if the copy is not
// complete, because another process may have a complete one.
func (c *Copy) lossPause() time.Duration {
	if p := c.store.Copy().Point(); p.Number > 0 && !p.Partial {
		return c.timing.loss
	}
	return 4 * c.timing.loss
}

const (
	// maxBehind is the number of commits that a copy may be behind the log if the process is to be ready.
	maxBehind = 2
	// eligibleBehind is the same for a process that tries to be chosen. It is higher because a leader that stops makes
	// several commits at once.
	eligibleBehind = 100
)

// Ready reports whether this process is a standby that can take over at once: its copy is complete and up to date.
func (c *Copy) Ready() bool { return !c.leads.Load() && c.isWithin(maxBehind) }

// isWithin reports whether the copy is complete and at most some commits behind the log.
func (c *Copy) isWithin(commits int) bool { return c.Behind() >= 0 && c.Behind() <= commits }

// Eligible reports whether this process should try to be chosen now. It is called before each attempt, which means that
// no other process is the leader. A process lets others try first for Options.Patience if it has another configuration
// than the last leader, or if its copy is not complete and nearly up to date, unless the copy was up to date when the
// log lost commits, or has changes that the log does not have: any other process would discard them. Eligible does not
// block.
func (c *Copy) Eligible() bool {
	preferred := c.isWithin(eligibleBehind) || c.wasUpToDate() && c.incomplete.Load() || c.isDetached()
	in := c.store.Copy().Point().Claim.Configuration
	c.mu.Lock()
	defer c.mu.Unlock()
	if in != "" && in != c.configuration {
		preferred = false
	}
	now := time.Now()
	if now.Sub(c.asked) > 2*c.patience {
		c.vacant = now // another process has been the leader meanwhile
	}
	c.asked = now
	if !c.refused.IsZero() && now.Sub(c.refused) < c.lossPause() {
		return false
	}
	return preferred || now.Sub(c.vacant) >= c.patience
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/journals"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

const (
	// drainPoll is the interval at which a replica that stops looks whether its audit events are delivered.
	drainPoll = 20 * time.Millisecond
	// drainPatience is how long it waits for a sink that does not deliver.
	drainPatience = time.Second
	// recordTimeout is the maximum time for noting, at the end, whether everything was delivered.
	recordTimeout = 2 * time.Second
)

// auditing accepts and delivers the audit events of one of several replicas, whoever leads. A nil *auditing is valid
// and does nothing.
type auditing struct {
	*intake

	cfg     *config.Config
	store   *checkpoint.Store
	keeper  *journals.Keeper
	metrics *metrics.Metrics
	engine  atomic.Pointer[engine.Engine] // nil before the first one runs
	open    atomic.Bool                   // events are accepted
	leads   atomic.Bool                   // an engine of this process leads
}

// openAuditing opens the journal, the checkpoint and the listener, if the configuration has the key audit. Close them
// with during.
func (b *bridge) openAuditing(lease config.Lease) (_ *auditing, err error) {
	cfg := b.cfg
	if cfg.Audit == nil {
		return nil, nil
	}
	a := &auditing{cfg: cfg, metrics: metrics.NewPart()}
	state, err := assemble.Checkpoint(cfg, b.log)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.State.Path, 0o700); err != nil {
		return nil, err
	}
	state.Path = assemble.AuditState(cfg)
	if a.store, err = checkpoint.Open(state); err != nil {
		return nil, err
	}
	if a.intake, err = b.openIntake(cfg, a.store); err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	a.metrics.Registry.MustRegister(a.intake.metrics)
	period := cfg.Election.LeaseDuration
	kube := rest.CopyConfig(b.kube)
	kube.UserAgent = "deltabridge/" + b.Version
	kube.NextProtos = []string{"http/1.1"} // after a timeout, the next request has another connection
	register, err := journals.New(kube, lease.Namespace, assemble.AuditLease(lease), period/2)
	if err != nil {
		return nil, errors.Join(err, a.journal.Close(), a.store.Close())
	}
	a.keeper = journals.NewKeeper(journals.Options{
		Records: register, Replica: b.server.name, Journal: a.journal.ID(), Period: period, Logger: b.log,
		Last: func() uint64 { return a.journal.Status().Last }, Leads: a.leads.Load,
		Delivered: func() (uint64, bool) {
			e := a.engine.Load()
			if e == nil {
				return 0, false
			}
			return e.AuditDelivered()
		},
		Announce: func(id, why string) bool {
			e := a.engine.Load()
			return e != nil && e.AnnounceAuditLoss(id, why)
		},
	})
	return a, nil
}

// during accepts and delivers audit events while call runs, and then delivers the rest for at most shutdownTimeout. If
// it cannot do so any longer, it ends the context of call.
func (b *bridge) during(ctx context.Context, call func(context.Context) error) error {
	a := b.auditing
	if a == nil {
		return call(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	delivering, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	var accepted, delivered error
	group.Go(func() {
		defer cancel()
		delivered = b.deliverAudit(delivering)
	})
	group.Go(func() {
		defer stop()
		defer cancel()
		if !a.keeper.Begin(ctx) {
			return
		}
		a.open.Store(true)
		accepted = a.accept(ctx)
		a.open.Store(false)
		a.drain(delivering)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		a.keeper.End(last)
	})
	err := call(ctx)
	cancel()
	group.Wait()
	return errors.Join(err, accepted, delivered, a.journal.Close(), a.store.Close())
}

// accept accepts events until ctx ends. When it returns, no more events are accepted.
func (a *auditing) accept(ctx context.Context) error {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keeping.Go(func() { a.keeper.Run(ctx) })
	return a.server.Run(ctx)
}

// drain waits until everything is delivered, but not for a sink that does not deliver, or for longer than
// shutdownTimeout.
func (a *auditing) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ShutdownTimeout)
	defer cancel()
	for delivering := time.Now(); time.Since(delivering) < drainPatience; {
		e := a.engine.Load()
		if e == nil {
			return
		}
		if upTo, ok := e.AuditDelivered(); ok && upTo >= a.journal.Status().Last {
			return
		}
		if e.DeliversAudit() {
			delivering = time.Now()
		}
		if !pause.For(ctx, drainPoll) {
			return
		}
	}
}

// deliverAudit runs an engine for the audit sinks until ctx ends.
func (b *bridge) deliverAudit(ctx context.Context) error {
	a := b.auditing
	for {
		o, err := assemble.AuditOptions(a.cfg, b.kube, b.Version, b.log)
		if err != nil {
			return err
		}
		o.Store, o.Metrics = a.store, a.metrics
		a.giveTo(&o)
		e, err := b.newEngine(a.cfg, o, nil)
		if err != nil {
			return err
		}
		a.engine.Store(e)
		if err = e.Run(ctx); !errors.Is(err, tracker.ErrOtherCluster) {
			return err
		}
		b.log.Warn("audit events: starting again with a new checkpoint", "because", err)
	}
}

// lead notes whether an engine of this process leads.
func (a *auditing) lead(leads bool) {
	if a != nil {
		a.leads.Store(leads)
	}
}

// refuse returns an error if a command is about an audit sink. Only the leader gets commands, and every replica has
// one.
func (a *auditing) refuse(sinks []string) error {
	if a == nil {
		return nil
	}
	for _, sink := range a.cfg.AuditSinks() {
		if slices.Contains(sinks, sink) {
			return fmt.Errorf(
				"sink %s is sent audit events: with state.log, every replica delivers those that it has accepted, "+
					"so that the sink can be neither paused nor resynced",
				sink,
			)
		}
	}
	return nil
}

// note adds the audit sinks to a status.
func (a *auditing) note(s *control.Status) {
	if a == nil {
		return
	}
	if e := a.engine.Load(); e != nil {
		s.Sinks = append(s.Sinks, e.Status().Sinks...)
	}
}

// readiness returns a function that also returns why audit events are not accepted or delivered yet.
func (a *auditing) readiness(of func() (reasons, notes []string)) func() (reasons, notes []string) {
	if a == nil {
		return of
	}
	return func() (reasons, notes []string) {
		reasons, notes = of()
		if e := a.engine.Load(); e != nil {
			more, noted := e.Readiness()
			reasons, notes = append(reasons, more...), append(notes, noted...)
		}
		if !a.open.Load() {
			reasons = append(reasons, "audit events are not accepted yet")
		}
		return reasons, notes
	}
}

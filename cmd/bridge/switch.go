package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// runEngines runs engines, one after another: the next one has the changed configuration. They use the same checkpoint,
// so a changed configuration has the effects of a restart. t contains the role, and edit completes the options of each
// engine. taking is the take-over that the first engine is a part of, or nil.
func (b *bridge) runEngines(
	ctx context.Context, t task, taking *takeOver, store *checkpoint.Store, edit func(*engine.Options),
) (err error) {
	current := b.reload.begin()
	defer b.reload.end()
	m := b.newMetrics(t)
	if err := m.KeepGaps(filepath.Join(b.cfg.State.Path, "gaps.json")); err != nil {
		b.log.Warn("cannot read when gap events were last delivered, so their metric is incomplete", "err", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var socket sync.WaitGroup
	socket.Go(func() { control.ServeSocket(serving, b.cfg.State.Path, b.server.commands(), b.log) })
	defer socket.Wait()
	defer stop()
	var kept *engine.Kept
	for {
		e, err := b.newEngine(current, m, taking, kept, func(o *engine.Options) { o.Store = store; edit(o) })
		if err != nil {
			return errors.Join(err, kept.Close())
		}
		taking.end(stepEngine)
		t.readiness, t.pages, t.commands, t.status = e.Readiness, m.Handler(e.Readiness), e.Commands(), e.Status
		b.server.serve(t)
		next, err := b.runEngine(ctx, e, current.cfg)
		if kept = e.Kept(); err != nil || next == nil || ctx.Err() != nil {
			return errors.Join(err, kept.Close())
		}
		if err := b.use(e, next, store); err != nil {
			return errors.Join(err, kept.Close())
		}
		current, taking = b.reload.inUse(), nil
	}
}

// newMetrics returns the metrics of a process with a task.
func (b *bridge) newMetrics(t task) *metrics.Metrics {
	m := metrics.New(version, commit)
	m.Registry.MustRegister(b.reload)
	if t.copy != nil {
		m.Registry.MustRegister(t.copy)
	}
	return m
}

// newEngine builds an engine with the configuration of current.
func (b *bridge) newEngine(
	current *loaded, m *metrics.Metrics, taking *takeOver, kept *engine.Kept, edit func(*engine.Options),
) (*engine.Engine, error) {
	options := current.options
	if current.options = nil; options == nil {
		built, err := b.options(current.cfg)
		if err != nil {
			return nil, err
		}
		options = &built
	}
	edit(options)
	options.Metrics, options.Kept = m, kept
	printed := func(string, *event.Message) {}
	if b.out != nil {
		printed = newPrinter(b.out, assemble.Places(current.cfg)).print
	}
	options.OnSettled = func(sink string, m *event.Message) {
		taking.endFirst()
		printed(sink, m)
		b.server.page.Observe(sink, m)
	}
	options.Transform = b.server.page.Counting(options.Transform)
	options.OnReady = func() { taking.end(stepReady) }
	return engine.New(*options)
}

// options builds the parts of an engine.
func (b *bridge) options(cfg *config.Config) (engine.Options, error) {
	return assemble.Options(cfg, b.kube, version, b.log)
}

// runEngine runs an engine with the configuration cfg until ctx ends, or until another configuration is to be used,
// which it returns.
func (b *bridge) runEngine(ctx context.Context, e *engine.Engine, cfg *config.Config) (next *loaded, err error) {
	waiting, stop := context.WithCancel(ctx)
	chosen := make(chan *loaded, 1)
	go func() { chosen <- b.replace(waiting, e, cfg) }()
	err = e.Run(ctx)
	stop()
	return <-chosen, err
}

// replace waits until another configuration is to be used, makes the engine end, and returns the configuration. It
// returns nil when ctx ends.
func (b *bridge) replace(ctx context.Context, e *engine.Engine, cfg *config.Config) *loaded {
	for {
		next := b.reload.next(ctx)
		if next == nil {
			return nil
		}
		if err := errors.Join(e.CanEnd(), removedWithEvents(e.Stuck(), next.cfg)); err != nil {
			b.reload.refuse(err)
			continue
		}
		if b.cfg.State.Log != nil && !b.awaitPeers(ctx, next) {
			continue // ctx has ended, or the file has changed again
		}
		e.Replace(func(sink string) bool { return assemble.KeepsDelivery(cfg, next.cfg, sink) })
		return next
	}
}

// use is called between two engines. It records that the configuration is in use, unless removed sinks could not
// deliver all events. Then the next engine has the same configuration as the last one.
func (b *bridge) use(last *engine.Engine, next *loaded, store *checkpoint.Store) error {
	if err := removedWithEvents(last.Undelivered(), next.cfg); err != nil {
		b.reload.refuse(err)
		return nil
	}
	state, err := assemble.Checkpoint(next.cfg, b.log)
	if err != nil {
		return err
	}
	store.SetPrivacy(state.Privacy)
	if err := store.TakeOver(); err != nil {
		return err
	}
	b.reload.use(next)
	return nil
}

// removedWithEvents returns an error if events wait for sinks that the configuration does not have.
func removedWithEvents(waiting map[string]int64, cfg *config.Config) error {
	var errs []error
	for sink, events := range waiting {
		if events > 0 && !slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == sink }) {
			errs = append(errs, fmt.Errorf("%d events wait for the sink %s, which is not in the configuration: restore the "+
				"sink with its old name until they are delivered", events, sink))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// peersPatience is how long the leader waits for other replicas before it uses a changed configuration. The kubelet
// brings a changed ConfigMap into Pods within about 90 seconds. peersInterval is the interval between two checks.
const (
	peersPatience = 2 * time.Minute
	peersInterval = time.Second
)

// awaitPeers waits until all other replicas that answer have the configuration next. Only then may the leader use it.
// Then a replica that takes over never has an earlier configuration than the last leader. It returns false if ctx has
// ended, or if next is not what is to be used any more.
func (b *bridge) awaitPeers(ctx context.Context, next *loaded) bool {
	until := time.Now().Add(peersPatience)
	for ctx.Err() == nil && b.reload.accepted() == next {
		others := lagging(b.readPeers(ctx, next.cfg.HTTP.Peers), b.server.name, next.hash)
		if len(next.cfg.HTTP.Peers) == 0 {
			others = []string{"the other replicas, which http.peers does not name"}
		}
		if len(others) == 0 {
			return true
		}
		if time.Now().After(until) {
			b.log.Warn("loading the changed configuration, although other replicas do not have it yet", "replicas", others)
			return true
		}
		b.reload.setWaits("waits at most until " + until.UTC().Format(time.RFC3339) + " for " + strings.Join(others, ", "))
		select {
		case <-ctx.Done():
		case <-time.After(peersInterval):
		}
	}
	return false
}

// lagging returns the names of the other replicas that answer and have another configuration.
func lagging(answers []control.Answer, self, hash string) (names []string) {
	for _, a := range answers {
		if a.Status != nil && a.Replica.Name != self && a.Configuration.Hash != hash {
			names = append(names, a.Replica.Name)
		}
	}
	return names
}

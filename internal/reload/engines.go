package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Engine is an engine that can be replaced. *engine.Engine implements it.
type Engine interface {
	Run(ctx context.Context) error
	CanEnd() error
	Stuck() map[string]int64
	Replace(keep func(sink string) bool)
	Kept() *engine.Kept
	Undelivered() map[string]int64
}

// RunEngines runs engines, one after another, until ctx ends or one of them fails. The next one has the changed
// configuration. start returns an engine with the given parts, which continues what the last engine has kept. change is
// called between two engines, before a configuration is in use.
func (r *Reloader) RunEngines(
	ctx context.Context, start func(*Loaded, engine.Options) (Engine, error), change func(*config.Config) error,
) error {
	current := r.begin()
	defer r.end(context.WithoutCancel(ctx))
	var kept *engine.Kept
	for {
		e, err := r.start(current, kept, start)
		if err != nil {
			return errors.Join(err, kept.Close())
		}
		next, err := r.runEngine(ctx, e, current.Config)
		if kept = e.Kept(); err != nil || next == nil || ctx.Err() != nil {
			return errors.Join(err, kept.Close())
		}
		if err := r.switchTo(ctx, e, next, change); err != nil {
			return errors.Join(err, kept.Close())
		}
		current = r.InUse()
	}
}

// start starts an engine with the parts that the check of the configuration has built, or with others if an earlier
// engine had these.
func (r *Reloader) start(
	current *Loaded, kept *engine.Kept, start func(*Loaded, engine.Options) (Engine, error),
) (Engine, error) {
	parts := current.parts
	if current.parts = nil; parts == nil {
		built, err := r.opts.Build(current.Config)
		if err != nil {
			return nil, err
		}
		parts = &built
	}
	parts.Kept = kept
	return start(current, *parts)
}

// runEngine runs an engine with the configuration cfg until ctx ends, or until another configuration is to be used,
// which it returns.
func (r *Reloader) runEngine(ctx context.Context, e Engine, cfg *config.Config) (next *Loaded, err error) {
	waiting, stop := context.WithCancel(ctx)
	chosen := make(chan *Loaded, 1)
	go func() { chosen <- r.replace(waiting, e, cfg) }()
	err = e.Run(ctx)
	stop()
	return <-chosen, err
}

// replace waits until another configuration is to be used, makes the engine end, and returns the configuration. It
// returns nil when ctx ends.
func (r *Reloader) replace(ctx context.Context, e Engine, cfg *config.Config) *Loaded {
	for {
		next := r.next(ctx)
		if next == nil {
			return nil
		}
		if err := errors.Join(e.CanEnd(), removedWithEvents(e.Stuck(), next.Config)); err != nil {
			r.refuse(err, next.Hash)
			continue
		}
		if cfg.State.Log != nil && !r.awaitPeers(ctx, next) {
			continue // ctx has ended, or the file has changed again
		}
		e.Replace(func(sink string) bool { return keepsDelivery(cfg, next.Config, sink) })
		return next
	}
}

// switchTo is called between two engines. It records that the configuration is in use, unless removed sinks could not
// deliver all events, or the state log has become unavailable: see awaitPeers. Then the next engine has the same
// configuration as the last one.
func (r *Reloader) switchTo(
	ctx context.Context, last Engine, next *Loaded, change func(*config.Config) error,
) error {
	if err := removedWithEvents(last.Undelivered(), next.Config); err != nil {
		r.refuse(err, next.Hash)
		return nil
	}
	if !r.reachesLog(ctx) {
		return nil
	}
	if err := change(next.Config); err != nil {
		return err
	}
	r.use(ctx, next)
	return nil
}

// begin returns the configuration for an engine. From now on, the engine must take changed configurations.
func (r *Reloader) begin() *Loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = true
	return r.current
}

// end is called when no engine runs any more. What was accepted meanwhile is in use now.
func (r *Reloader) end(ctx context.Context) {
	r.mu.Lock()
	r.running = false
	next := r.pending
	r.mu.Unlock()
	if next != nil {
		r.use(ctx, next)
	}
}

// next returns an accepted configuration that is not in use, as soon as there is one. It returns nil when ctx ends.
func (r *Reloader) next(ctx context.Context) *Loaded {
	for ctx.Err() == nil {
		if pending := r.accepted(); pending != nil {
			return pending
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		}
	}
	return nil
}

// accepted returns what was accepted and is not in use, or nil.
func (r *Reloader) accepted() *Loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}

// removedWithEvents returns an error if events wait for sinks that the configuration does not have.
func removedWithEvents(waiting map[string]int64, cfg *config.Config) error {
	var errs []error
	for sink, events := range waiting {
		if events > 0 && cfg.Sink(sink) == nil {
			errs = append(errs, fmt.Errorf("%d events wait for the sink %s, which is not in the configuration: restore the "+
				"sink with its old name until they are delivered", events, sink))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// OrphanedEvents returns an error if a checkpoint that contains spilled events, as with a state log, contains events of
// sinks that are not in the configuration.
func OrphanedEvents(store *checkpoint.Store, cfg *config.Config) error {
	waiting, err := store.Waiting()
	removed := slices.DeleteFunc(waiting, func(sink string) bool { return cfg.Sink(sink) != nil })
	if len(removed) > 0 {
		err = fmt.Errorf("the checkpoint contains events for sinks that are not in the configuration: %s; restore these "+
			"sinks with their old names until their events are delivered", strings.Join(removed, ", "))
	}
	return err
}

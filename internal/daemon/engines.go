package daemon

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/reload"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// runEngines runs engines, one after another: the next one has the changed configuration. They use the same checkpoint,
// so a changed configuration has the effects of a restart. t contains the role, and edit completes the options of each
// engine. taking is the take-over that the first engine is a part of, or nil.
func (b *bridge) runEngines(
	ctx context.Context, t task, taking *control.Recorder, store *checkpoint.Store, edit func(*engine.Options),
) error {
	m := b.newMetrics(t)
	if err := m.KeepGaps(filepath.Join(b.cfg.State.Path, "gaps.json")); err != nil {
		b.log.Warn("cannot read when gap events were last delivered, so their metric is incomplete", "err", err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var socket sync.WaitGroup
	socket.Go(func() { control.ServeSocket(serving, b.cfg.State.Path, b.server.commands(), b.log) })
	defer socket.Wait()
	defer stop()
	use := func(cfg *config.Config) error {
		if err := b.setPrivacy(store, cfg); err != nil {
			return err
		}
		return store.TakeOver()
	}
	isFirst := true
	start := func(current *reload.Loaded, o engine.Options) (reload.Engine, error) {
		if isFirst { // the configuration can have changed since the checkpoint was opened or taken over
			isFirst = false
			if err := use(current.Config); err != nil {
				return nil, err
			}
		}
		o.Store, o.Metrics = store, m
		edit(&o)
		e, err := b.newEngine(current.Config, o, taking)
		if err != nil {
			return nil, err
		}
		taking.End(control.StepEngine)
		taking = nil
		t.readiness = b.auditing.readiness(e.Readiness)
		t.pages, t.commands, t.status = m.Handler(t.readiness), e.Commands(), e.Status
		b.server.serve(t)
		return e, nil
	}
	return b.reload.RunEngines(ctx, start, use)
}

// setPrivacy sets what the rows of a checkpoint may contain. The caller must call TakeOver next.
func (b *bridge) setPrivacy(store *checkpoint.Store, cfg *config.Config) error {
	state, err := assemble.Checkpoint(cfg, b.log)
	if err == nil {
		store.SetPrivacy(state.Privacy)
	}
	return err
}

// newMetrics returns the metrics of a process with a task.
func (b *bridge) newMetrics(t task) *metrics.Metrics {
	m := metrics.New(b.Version, b.Commit)
	m.Registry.MustRegister(b.reload)
	if b.intake != nil {
		m.Registry.MustRegister(b.intake.metrics)
	}
	if t.copy != nil {
		m.Registry.MustRegister(t.copy)
	}
	if b.auditing != nil {
		m.Part = b.auditing.metrics
	}
	return m
}

// newEngine builds an engine whose events are observed: by the take-over, by the page and on the output.
func (b *bridge) newEngine(cfg *config.Config, o engine.Options, taking *control.Recorder) (*engine.Engine, error) {
	printed := func(string, *event.Message) {}
	if b.Events != nil {
		printed = newPrinter(b.Events, assemble.Places(cfg)).print
	}
	o.OnSettled = func(sink string, m *event.Message) {
		taking.EndFirst()
		printed(sink, m)
		b.server.page.Observe(sink, m)
	}
	o.OnReady = func() { taking.End(control.StepReady) }
	return engine.New(o)
}

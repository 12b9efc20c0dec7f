package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/doctor"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"k8s.io/client-go/rest"
)

// Bridge is the whole process: informers, one pipeline for each sink, and the HTTP server.
type Bridge struct {
	cfg        *config.Config
	log        *slog.Logger
	redaction  *redaction
	engine     *engine.Engine
	enrichment *enrichment // nil: no sink asks for it
	metrics    *metrics
	pipelines  []*pipeline
	set        *informer.Set
	resyncs    *resyncer
	connector  *informer.Connector
	client     rest.Interface // of the API server
	prober     reach.Prober   // shared by all that wait for a server
	http       *httpServer

	stopping atomic.Bool
	// reading ends when no more changes are read: it is what a blocked push waits for at shutdown.
	reading     context.Context //nolint:containedctx // handlers of informers are called without one
	stopReading context.CancelFunc
}

// maxSlots is how many filter decisions an object can remember; later filters evaluate again.
const maxSlots = 64

// newBridge builds everything from a checked configuration, and takes the HTTP port. Nothing runs yet.
func newBridge(cfg *config.Config, kube *rest.Config, log *slog.Logger) (*Bridge, error) {
	if err := orphanedEvents(cfg); err != nil {
		return nil, err
	}
	b := &Bridge{cfg: cfg, log: log, metrics: newMetrics()}
	b.reading, b.stopReading = context.WithCancel(context.Background())
	var err error
	if b.redaction, err = newRedaction(cfg); err != nil {
		return nil, err
	}
	if b.engine, err = openEngine(cfg, b.redaction.privacy, b.persist, log); err != nil {
		return nil, err
	}
	b.enrichment = newEnrichment(b.reading, cfg, b.redaction.redactor)
	slot := 0
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		p, err := newPipeline(cfg, s, b.metrics, b.redaction.forSink(s), slot, b.engine, &b.prober, log)
		if err != nil {
			return nil, err
		}
		p.enrich = b.enrichment.forSink(s)
		slot = min(slot+p.filter.Slots(), maxSlots)
		b.pipelines = append(b.pipelines, p)
	}
	if err = b.buildSet(kube); err != nil {
		return nil, err
	}
	b.resyncs = newResyncer(b.reading, b.pipelines, b.set.Informers, log)
	holdsUp(b.pipelines)
	b.metrics.registry.MustRegister(&stateCollector{b.pipelines, b.set.Statuses, b.engine})
	if b.http, err = listenHTTP(cfg.HTTP.Listen, b.metrics.registry, b.notReady); err != nil {
		return nil, err
	}
	return b, nil
}

// orphanedEvents is an error if the state holds events of sinks that the configuration does not have.
func orphanedEvents(cfg *config.Config) error {
	if err := doctor.OrphanedEvents(cfg); err != nil {
		return fmt.Errorf("%w; %s", err, doctor.OrphanRemedy)
	}
	return nil
}

// openEngine opens the checkpoint of the configured state folder.
func openEngine(cfg *config.Config, privacy *checkpoint.Privacy, persist func(), log *slog.Logger) (*engine.Engine, error) {
	o := engine.Options{Folder: cfg.State.Path, Cluster: cfg.Cluster, Privacy: privacy, Persist: persist, Logger: log}
	watch, err := json.Marshal(cfg.Watch)
	if err != nil {
		return nil, err
	}
	o.Watch = string(watch)
	for n := range cfg.Sinks {
		s := &cfg.Sinks[n]
		text, err := json.Marshal(s.Filters)
		if err != nil {
			return nil, err
		}
		lossy := s.Buffer.Overflow == config.OverflowCompact || s.Buffer.Overflow == config.OverflowDropOldest
		o.Sinks = append(o.Sinks, engine.Sink{Name: s.Name, Filter: string(text), Lossy: lossy})
	}
	return engine.Open(o)
}

// persist has the queues write to disk, soon, what waits in them.
func (b *Bridge) persist() {
	for _, p := range b.pipelines {
		p.queue.Persist()
	}
}

// resume gives what the checkpoint holds of a source, for its informer to begin with.
func (b *Bridge) resume(source informer.Source) informer.Memory {
	return b.engine.Resume(source, b.spilled(source.Name))
}

// takeOver makes objects of remembered sources those of another one.
func (b *Bridge) takeOver(into informer.Source, shares []informer.Share) {
	b.engine.TakeOver(b.reading, into, shares, b.spilled)
}

// spilled gives the positions of a source that were in the spills at the start, by sink.
func (b *Bridge) spilled(source string) map[string]string {
	spilled := map[string]string{}
	for _, p := range b.pipelines {
		// The uid may have become known since the spill was written.
		for _, uid := range []string{checkpoint.UnknownCluster, b.engine.ClusterUID()} {
			if position := p.spilled[uid+"/"+source]; position != "" {
				spilled[p.name] = position
			}
		}
	}
	return spilled
}

// attach joins a new informer to the checkpoint and to every pipeline.
func (b *Bridge) attach(i *informer.Informer) {
	source := i.Source()
	if !b.engine.IsBack(source.Name) { // it goes on from a predecessor whose source was forgotten
		b.resume(source)
		i.BeginAnew()
	}
	ledger := b.engine.Ledger(source.Name)
	i.AddEventHandler(b.engine.Recorder(b.reading, source.Name))
	b.enrichment.attach(i)
	for _, p := range b.pipelines {
		if i.Auxiliary() {
			ledger.Caught(p.name) // nothing of it is for sinks
			continue
		}
		known := b.engine.Known(source.Name, p.name)
		if i.ResumesAt() == "" { // what was settled before counts only for what goes on from there
			known.Floor = ""
		}
		p.attach(b.reading, i, ledger, known)
	}
}

// notReady says in words why the bridge is not ready; empty means that it is.
func (b *Bridge) notReady() []string {
	if b.stopping.Load() {
		return []string{"shutting down"}
	}
	var reasons []string
	for _, p := range b.pipelines {
		if !p.drain.Connected() {
			reasons = append(reasons, "sink "+p.name+": "+p.drain.Status())
		} else if refused := p.guard.Refused(); refused != "" {
			reasons = append(reasons, "sink "+p.name+": "+refused)
		}
	}
	for _, p := range b.pipelines {
		if _, _, _, _, err := p.queue.SpillStats(); err != "" {
			reasons = append(reasons, "sink "+p.name+": its spill can't be written: "+err)
		}
	}
	if reason := b.engine.NotReady(); reason != "" {
		reasons = append(reasons, reason)
	}
	return append(reasons, b.set.NotReady()...)
}

// Run works until ctx ends, then stops in stages: no more reading of changes, no more pushes, delivery of what is
// queued for at most cfg.ShutdownTimeout as long as the destination takes it, then what is left goes to disk, the checkpoint,
// sinks, HTTP last so that the final counters can be read. It returns when every goroutine has ended. What was not
// delivered is counted in the log and is no error; what could not be written is one.
func (b *Bridge) Run(ctx context.Context) error {
	var stages struct{ http, checkpoint, spills, drains, set stage }
	stages.http.start(b.http.Run)
	background, stopBackground := context.WithCancel(context.Background())
	defer stopBackground()
	stages.checkpoint.start(func() error { return b.engine.Run(background) })
	spilling, stopSpilling := context.WithCancel(background)
	defer stopSpilling()

	for _, p := range b.pipelines {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		p.stop, p.drained = stop, make(chan struct{})
		stages.spills.start(func() error { return p.queue.Run(spilling) })
		stages.drains.start(func() error {
			defer close(p.drained)
			err := p.drain.Run(ctx)
			if errors.Is(err, context.Canceled) {
				return nil // counted by left
			}
			return err
		})
	}
	stages.set.start(b.read)

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-stages.http.failed():
	case failure = <-stages.spills.failed():
	case failure = <-stages.drains.failed():
	case failure = <-stages.set.failed():
	}
	b.log.Info("stopping", "shutdownTimeout", time.Duration(b.cfg.ShutdownTimeout))
	b.stopping.Store(true)
	b.stopReading()
	stages.set.wait()
	b.finishDelivery()
	stages.drains.wait()
	stopSpilling()
	stages.spills.wait()
	stopBackground()
	stages.checkpoint.wait()
	b.closeSinks()
	failure = errors.Join(failure, stages.spills.failure(), stages.checkpoint.failure(), b.engine.Close(), b.http.Close())
	stages.http.wait()
	return failure
}

// read watches the cluster until no more changes are to be read.
func (b *Bridge) read() error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(b.resyncs.Run)
	if c := listenControl(b.cfg.State.Path, b.resyncs, b.log); c != nil {
		group.Go(func() { c.Run(b.reading) })
	}
	err := b.engine.Identify(b.reading, b.connector, b.client)
	switch {
	case b.reading.Err() != nil:
		return nil
	case err != nil:
		b.stopReading()
		return err
	}
	group.Go(b.giveBack)
	for _, p := range b.pipelines {
		p.encoder.ClusterUID = b.engine.KnownUID()
		group.Go(func() { b.resyncs.follow(p, b.engine, func() bool { return len(b.set.NotReady()) == 0 }) })
	}
	return b.set.Run(b.reading)
}

// giveBack returns memory to the system once, when the bridge has become ready: first lists take several times what
// is kept of them, and the runtime gives that back so slowly that it looks like need. From then on it tends the garbage.
func (b *Bridge) giveBack() {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for len(b.notReady()) > 0 {
		select {
		case <-b.reading.Done():
			return
		case <-ticker.C:
		}
	}
	debug.FreeOSMemory()
	tendGarbage(b.reading)
}

// stage is a group of goroutines that end together.
type stage struct {
	group sync.WaitGroup
	once  sync.Once
	errs  chan error
}

func (s *stage) start(run func() error) {
	failed := s.failed()
	s.group.Go(func() {
		if err := run(); err != nil {
			select {
			case failed <- err:
			default: // one failure is enough to stop
			}
		}
	})
}

// failed receives the first error of the stage.
func (s *stage) failed() chan error {
	s.once.Do(func() { s.errs = make(chan error, 1) })
	return s.errs
}

func (s *stage) wait() { s.group.Wait() }

// failure is the first error of the stage, if nobody received it before.
func (s *stage) failure() error {
	select {
	case err := <-s.failed():
		return err
	default:
		return nil
	}
}

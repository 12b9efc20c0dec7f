package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/observe"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Engine watches a cluster and delivers its changes to sinks. It owns the informers, one pipeline per sink, and the
// tracker.
type Engine struct {
	options    Options
	metrics    *metrics.Metrics
	tracker    *tracker.Tracker
	enrichment *enrichment // nil if no sink requires enrichment
	namespaces *namespaces // nil if no filter has a namespaceSelector
	pipelines  []*pipeline
	set        *fleet.Fleet
	resyncs    *resyncer
	readers    []*auditread.Reader // of the sinks that are sent audit events
	connector  *informer.Connector
	client     rest.Interface // client of the API server
	observer   *observe.Observer
	auditLog   rate.Sometimes

	// reading ends when no more changes are read. During shutdown, the end of reading ends a blocked push.
	reading     context.Context //nolint:containedctx // handlers of informers are called without one
	stopReading context.CancelFunc

	replaced    chan struct{} // closed by Replace
	keep        func(sink string) bool
	kept        *Kept
	undelivered map[string]int64 // see Undelivered
}

// New builds all parts and opens the files of the sinks in the state directory. Run starts the parts.
func New(o Options) (*Engine, error) {
	e := &Engine{options: o, metrics: o.Metrics, replaced: make(chan struct{}), undelivered: map[string]int64{}}
	e.auditLog.Interval = time.Minute
	e.reading, e.stopReading = context.WithCancel(context.Background())
	e.tracker = e.newTracker()
	for _, build := range []func() error{e.buildPipelines, e.buildSet} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	e.buildNamespaces()
	e.resyncs = &resyncer{ctx: e.reading, pipelines: e.pipelines, informers: e.set.Informers}
	for _, p := range e.pipelines {
		e.use(p)
	}
	e.observer = e.newObserver()
	e.metrics.ReadState(e.observer)
	return e, nil
}

func (e *Engine) newTracker() *tracker.Tracker {
	o := &e.options
	of := tracker.Options{
		Store: o.Store, Watch: o.Watch, Queues: queues{e}, Reading: e.reading, Logger: o.Logger,
		EachSecond: func() { e.sample(); e.commitAudit() },
	}
	for n := range o.Sinks {
		s := &o.Sinks[n]
		sink := tracker.Sink{Name: s.Name, Filter: filterText(s.changeRules()), Lossy: s.Buffer.Overflow != delivery.Block}
		of.Sinks = append(of.Sinks, sink)
	}
	return tracker.New(of)
}

func (e *Engine) buildPipelines() error {
	o := &e.options
	e.enrichment = newEnrichment(e.reading, o.Enrichment, o.Sinks, func() { e.set.Informers() })
	return e.addPipelines(o.Sinks, func(p *pipeline) error {
		if p.audit != nil {
			e.readers = append(e.readers, p.audit)
		}
		return p.open()
	})
}

// addPipelines creates the pipelines of sinks. open prepares each for pushes.
func (e *Engine) addPipelines(all []Sink, open func(*pipeline) error) error {
	slot := 0
	for _, s := range all {
		p, err := e.newPipeline(s, slot)
		if err != nil {
			return err
		}
		if err := open(p); err != nil {
			return err
		}
		slot = min(slot+p.filter.Slots(), object.Slots) // filters that get no slots evaluate their decisions every time
		e.pipelines = append(e.pipelines, p)
	}
	return nil
}

// newOffline returns an engine without pipelines that connects to nothing and stores nothing.
func newOffline() *Engine {
	return &Engine{metrics: metrics.New("", ""), options: Options{Logger: slog.New(slog.DiscardHandler)}}
}

// queues implements tracker.Queues for all pipelines.
type queues struct{ engine *Engine }

// Persist implements tracker.Queues.
func (q queues) Persist() {
	for _, p := range q.engine.pipelines {
		p.hurry.Store(true) // updates that wait keep the ledgers from being written
		p.Queue.Persist()
	}
}

// Spilled implements tracker.Queues.
func (q queues) Spilled(source, history string) map[string]string {
	spilled := map[string]string{}
	for _, p := range q.engine.pipelines {
		// When the spill was written, the uid of the cluster may have been unknown.
		for _, uid := range []string{checkpoint.UnknownCluster, q.engine.tracker.ClusterUID()} {
			if position := p.Spilled[delivery.Mark(uid, source, history)]; position != "" {
				spilled[p.Name] = position
			}
		}
	}
	return spilled
}

// Readiness returns the reasons why the bridge is not ready, or nil if it is ready. Readiness means that the bridge has
// started and can do its work. notes describe sinks that do not deliver all their events because their destination has
// become unavailable, or because they are paused.
func (e *Engine) Readiness() (reasons, notes []string) {
	select {
	case <-e.replaced:
		return []string{"loading the changed configuration"}, nil
	default:
	}
	if e.reading.Err() != nil {
		return []string{control.ShuttingDown}, nil
	}
	for _, p := range e.pipelines {
		status := p.Drain.Status()
		line := "sink " + p.Name + ": " + status
		_, cause := p.Drain.Failure()
		switch started := p.Drain.Connected() && !errors.Is(cause, sinks.ErrNameTaken); {
		case !started && p.Drain.PausedSince().IsZero():
			reasons = append(reasons, line)
		case status != "ok":
			notes = append(notes, line)
		}
		if p.OutsideLog {
			reasons = append(reasons, "sink "+p.Name+": events that wait on disk are not in state.log: "+delivery.WhyOutside)
		}
		if err := p.Queue.SpillStats().LastErr; err != "" {
			reasons = append(reasons, "sink "+p.Name+": its spill can't be written: "+err)
		}
	}
	if err := e.tracker.NotReady(); err != nil {
		reasons = append(reasons, err.Error())
	}
	if reason := e.namespaces.notReady(); reason != "" {
		reasons = append(reasons, reason)
	}
	if e.options.NotReady != nil {
		if err := e.options.NotReady(); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	if e.options.AuditOnly {
		return reasons, notes
	}
	return append(reasons, e.set.NotReady()...), notes
}

// Run runs the engine until ctx ends, Replace is called, or one of its parts fails. It then stops in stages:
//
//   - Informers stop reading and pushing changes. With Options.Linger, delivery goes on.
//   - The drains deliver the queued events for at most ShutdownTimeout, as long as the destination accepts them.
//   - The remaining events are written to disk.
//   - The checkpoint is written, and the sinks are closed.
//
// After Replace, delivery goes on for the sinks that are kept, and the others have only a short time to deliver.
//
// If the checkpoint belongs to another cluster, Run stops in the same way, replaces the checkpoint with an empty one,
// and returns an error that wraps tracker.ErrOtherCluster. The caller then begins again with another Engine.
//
// Run returns when all its goroutines have ended. It logs the number of undelivered events, which is not an error. If
// something could not be written to disk, Run returns an error.
func (e *Engine) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	start := func(stage *errgroup.Group, run func() error) {
		stage.Go(func() error {
			err := run()
			if err != nil {
				stop()
			}
			return err
		})
	}
	var checkpoint, set errgroup.Group
	var auditing sync.WaitGroup
	background, stopBackground := context.WithCancel(context.Background())
	defer stopBackground()
	start(&checkpoint, func() error { return e.tracker.Run(background) })
	for _, p := range e.pipelines {
		p.Start()
	}
	for _, r := range e.readers {
		auditing.Go(func() { r.Run(e.reading) })
	}
	start(&set, e.read)

	select {
	case <-ctx.Done():
		e.options.Logger.Info("stopping", "shutdownTimeout", e.options.ShutdownTimeout)
	case <-e.replaced:
		e.options.Logger.Info("loading the changed configuration")
	}
	e.endReading()
	var journalEnd uint64
	if e.options.Journal != nil {
		journalEnd = e.options.Journal.Status().Last
	}
	failure := set.Wait()
	auditing.Wait()
	for _, p := range e.pipelines {
		p.pushDue(true)
	}
	ending, timeout := e.endDelivering(ctx)
	failure = errors.Join(failure, delivery.Finish(deliveries(ending), timeout))
	e.notePositions(ending)
	stopBackground()
	failure = errors.Join(failure, checkpoint.Wait())
	e.commitAudit()
	for _, p := range ending {
		e.undelivered[p.Name] = p.undelivered(journalEnd)
	}
	delivery.Close(deliveries(ending))
	return errors.Join(failure, e.tracker.Finish())
}

// endDelivering returns the pipelines whose deliveries must end now, and how long they may take. If the engine is
// replaced, it keeps the others. If it is not, it lingers first.
func (e *Engine) endDelivering(ctx context.Context) (ending []*pipeline, timeout time.Duration) {
	timeout = e.options.ShutdownTimeout
	if ctx.Err() != nil {
		e.linger()
		return e.pipelines, timeout
	}
	kept, ending := e.keepDeliveries()
	e.kept = &Kept{deliveries(kept), timeout}
	return ending, min(timeout, replaceTimeout)
}

// notePositions makes the last commit store the final positions of sinks, so that the next process does not read back
// what this process has sent. Their drains must have ended.
func (e *Engine) notePositions(pipelines []*pipeline) {
	_ = e.tracker.Commit() // stores the positions that were noted before; an error is logged
	for _, p := range pipelines {
		if note := p.Drain.Hooks.Between; note != nil {
			note()
		}
	}
}

// endReading stops the informers from passing on changes. If some sinks have already been sent a change, all other
// sinks are sent it too, even if their queues are full. Otherwise the checkpoint could not record which sinks know the
// change.
func (e *Engine) endReading() {
	for _, p := range e.pipelines {
		p.Queue.Lift()
	}
	e.stopReading()
}

// read watches the cluster until reading ends.
func (e *Engine) read() error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(e.resyncs.Run)
	if e.namespaces != nil {
		group.Go(func() { _ = e.namespaces.informer.Run(e.reading) }) // returns nil when reading ends
	}
	if !e.awaitNamespaces() {
		return nil
	}
	err := e.tracker.Identify(e.reading, e.connector, e.client)
	switch {
	case e.reading.Err() != nil:
		return nil
	case err != nil:
		e.stopReading()
		return err
	}
	if e.options.AuditOnly {
		for _, p := range e.pipelines {
			group.Go(func() { e.resyncs.follow(p, func() bool { return true }) })
		}
		<-e.reading.Done()
		return nil
	}
	group.Go(e.awaitReady)
	group.Go(e.awaitChanges)
	for _, p := range e.pipelines {
		p.clusterUID, p.epoch = e.tracker.KnownUID(), e.tracker.Epoch()
		if p.Buffer.Overflow != delivery.Block { // after a crash, dropped or merged events are sent behind newer ones
			p.epoch += "." + strconv.FormatInt(time.Now().UnixMilli(), 36)
		}
		if p.filter.Debounces() {
			group.Go(func() { p.followDebounce(e.reading) })
		}
		group.Go(func() { e.resyncs.follow(p, func() bool { return len(e.set.NotReady()) == 0 }) })
	}
	group.Go(e.followNamespaces) // from here on, filters change
	return e.set.Run(e.reading)
}

// awaitChanges tells the tracker when the informers have delivered all changes that the previous process may have sent.
// awaitChanges does not wait for a resource that still can't be read some minutes after other resources were read:
// otherwise the next process would have to read back everything that is sent until then.
func (e *Engine) awaitChanges() {
	const interval, patience = 200 * time.Millisecond, 5 * time.Minute
	var first time.Time // when the first informer had caught up
	err := wait.PollUntilContextCancel(e.reading, interval, false, func(context.Context) (bool, error) {
		some, all := caughtUp(e.tracker.Remembered(), e.set.Informers())
		if some && first.IsZero() {
			first = time.Now()
		}
		return !first.IsZero() && (all || time.Since(first) > patience), nil
	})
	if err == nil {
		e.tracker.CaughtUp()
	}
}

// caughtUp reports whether at least one informer, and whether all informers, have delivered all changes that the
// previous process may have sent. remembered contains the sources of that process that have no informer yet, because
// they are not served. A resource that RBAC forbids, and that the previous process could not read either, has no such
// changes.
func caughtUp(remembered []informer.Source, informers []*informer.Informer) (some, all bool) {
	all = len(remembered) == 0
	for _, i := range informers {
		switch {
		case i.CaughtUp():
			some = true
		case !i.Status().Forbidden || i.ResumesAt() != "":
			all = false
		}
	}
	return some, all
}

// awaitReady returns free memory to the operating system once, when the bridge is ready. Reading the initial lists
// requires several times the memory that the bridge keeps for their objects. The Go runtime by itself returns this
// memory so slowly that the process seems to require it.
func (e *Engine) awaitReady() {
	const interval = 20 * time.Millisecond
	err := wait.PollUntilContextCancel(e.reading, interval, true, func(context.Context) (bool, error) {
		reasons, _ := e.Readiness()
		return len(reasons) == 0, nil
	})
	if err != nil {
		return
	}
	if e.options.OnReady != nil {
		e.options.OnReady()
	}
	debug.FreeOSMemory()
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// spillPatience is how long a sink that is only slower than the API server holds up the reading of changes before its
	// queue goes to disk: far less than the API server's history lasts.
	spillPatience = 2 * time.Second
	// starving is for how long another sink may have nothing to send meanwhile.
	starving = 10 * time.Millisecond
)

// pipeline is one sink with all that belongs to it, in the order of the flow: filter, encoder, queue, drain, sink.
type pipeline struct {
	name    string
	filter  *filter.Filter
	encoder *event.Encoder
	queue   diskQueue
	drain   *sinks.Drain
	stop    context.CancelFunc // ends the drain at once
	drained chan struct{}      // closed when the drain has ended
	cut     bool               // the drain was ended before it had delivered everything
	sink    sinks.Sink
	letters *deadletter.File              // the sink's file of dead letters; nil if it has none
	closers []func(context.Context) error // of connections besides the sink's
	resync  time.Duration                 // how often everything is restated; 0: on request only
	bounds  struct {                      // of the queue
		events int
		bytes  int64
	}
	// enrich gives what other objects say of one; nil if the sink does not ask.
	enrich func(schema.GroupVersionResource, *object.Object) *event.Context
	guard  *sinks.Guard // sink, as the drain uses it
	// destinations has the last destination that the sink reported, until it is taken.
	destinations chan string
	// destination tells where a message goes, for people; nil if there is no one place.
	destination *event.Template

	metrics *sinkMetrics
	log     *slog.Logger
	prober  *reach.Prober // shared by all sinks; nil: each connection has its own
	// old are filters that the sink had before its configuration changed, by their texts; nil where one can't be read.
	old   map[string]*filter.Filter
	hurry func() bool // another sink would be held up with the source; set before anything is pushed
	// unreadable counts events on disk that could not be read back.
	unreadable atomic.Int64
	// spilled are the positions of what lay in the spill at the start, by cluster and source; none if it was empty, for
	// then the checkpoint knows better.
	spilled map[string]string
	// remembered gives the sources that the checkpoint has; nil: there is none.
	remembered func() []checkpoint.State
	cluster    func() string        // uid of the cluster, once it is known
	settle     func(*event.Message) // tells the checkpoint that the sink is done with a message
	// abandoned counts events that were given up at shutdown before the queue took them.
	abandoned atomic.Int64
}

// newPipeline builds the pipeline of one configured sink. slot is the first decision slot that its filter may use.
func newPipeline(cfg *config.Config, s *config.Sink, m *metrics, redactor *redact.Redactor, slot int, eng *engine.Engine, prober *reach.Prober, log *slog.Logger) (*pipeline, error) {
	p := &pipeline{name: s.Name, prober: prober, metrics: m.forSink(s.Name), log: log.With("sink", s.Name), resync: time.Duration(s.Resync)}
	p.bounds.events, p.bounds.bytes = s.Buffer.Events, int64(s.Buffer.Bytes)
	p.settle = func(m *event.Message) { eng.Settle(p.name, m) }
	p.cluster = eng.ClusterUID
	p.remembered = eng.States
	if err := p.compose(cfg, s, redactor, slot); err != nil {
		return nil, err
	}
	var err error
	if p.queue, err = p.buildQueue(s.Buffer, cfg.State.Path); err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.Name, err)
	}
	refusals, err := p.buildRefusals(s, cfg.State.Path)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.Name, err)
	}
	parking, err := p.openParked(s.Buffer, cfg.State.Path)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.Name, err)
	}
	p.drain = &sinks.Drain{Name: s.Name, Sink: p.guarded(cfg.Cluster, eng), Queue: p.queue, Refusals: refusals, Parked: parking, Hooks: p.metrics.hooks(), Logger: log}
	return p, nil
}

// compose builds what decides on a message: filter, encoder and sink. It does no I/O but reads the sink's files.
func (p *pipeline) compose(cfg *config.Config, s *config.Sink, redactor *redact.Redactor, slot int) (err error) {
	p.encoder = &event.Encoder{
		Cluster: cfg.Cluster, Payload: event.Payload(s.Payload), Content: event.Content(s.Content), Redactor: redactor,
		ContextInData: s.Enrich.As == config.EnrichData,
		Patch:         event.Patch(s.Patch), OnOldMissing: func(err error) {
			p.log.Error("the state before an update can't be read, the change is sent without it", "err", err)
		},
	}
	if p.filter, err = p.compileFilter(s.Filters, slot); err != nil {
		return err
	}
	if err = p.buildSink(s); err != nil {
		return fmt.Errorf("sink %s: %w", s.Name, err)
	}
	return nil
}

// compileOld compiles a filter that the sink had before its configuration changed.
func (p *pipeline) compileOld(text string) (*filter.Filter, error) {
	var filters []config.Filter
	if err := json.Unmarshal([]byte(text), &filters); err != nil {
		return nil, err
	}
	return p.compileFilter(filters, object.Slots) // beyond the slots: what it decides is not remembered
}

func (p *pipeline) compileFilter(filters []config.Filter, slot int) (*filter.Filter, error) {
	var rules []filter.Rule
	for _, f := range filters {
		rules = append(rules, filter.Rule{
			Resources: f.Resources, Namespaces: f.Namespaces, Operations: f.Operations, When: f.When,
			IgnoreChanges: f.IgnoreChanges, OnlyChanges: f.OnlyChanges, Preset: f.Preset,
		})
	}
	compiled, mistakes := filter.Compile(rules, filter.Options{
		Slot: slot, Bytes: seen(p.encoder.Redactor), Logger: p.log, OnError: func(int, error) { p.metrics.errs.Inc() },
	})
	if len(mistakes) > 0 { // the configuration was checked, so there are none
		return nil, fmt.Errorf("sink %s: %w", p.name, mistakes[0])
	}
	return compiled, nil
}

// diskQueue is a queue that writes to disk what waits for long or does not fit into memory.
type diskQueue interface {
	fifo.Queue[*event.Message]
	// Run writes until ctx ends, and then everything that waits.
	Run(ctx context.Context) error
	// Persist makes the queue write everything that waits now; the ledger hears of it.
	Persist()
	SpillStats() (items, bytes, fileBytes, errors int64, lastErr string)
}

var (
	_ diskQueue = (*fifo.Spill[*event.Message])(nil)
	_ diskQueue = (*fifo.Lossy[*event.Message])(nil)
)

// buildQueue makes the queue: a Spill, and in front of that half of the memory for a policy which gives up events.
func (p *pipeline) buildQueue(b config.Buffer, state string) (diskQueue, error) {
	var front fifo.Queue[*event.Message]
	events, size := b.Events, int64(b.Bytes)
	half, halfSize := max(1, events/2), size/2
	switch b.Overflow {
	case config.OverflowCompact:
		front = fifo.NewCompacting(fifo.CompactingOptions[*event.Message, types.UID]{
			MaxItems: half, MaxBytes: halfSize, Size: (*event.Message).Size,
			Key:       func(m *event.Message) types.UID { return m.Identity.UID },
			Mergeable: event.Mergeable, Merge: event.Merge, OnMerge: p.merged,
		})
	case config.OverflowDropOldest:
		front = fifo.NewRing(fifo.RingOptions[*event.Message]{
			MaxItems: half, MaxBytes: halfSize, Size: (*event.Message).Size,
			Overflow: fifo.DropOldest, Gap: p.foldGap, OnDrop: p.metrics.dropped,
		})
	}
	if front == nil {
		return p.buildSpill(events, size, int64(b.Spill.MaxBytes), state)
	}
	spill, err := p.buildSpill(events-half, size-halfSize, int64(b.Spill.MaxBytes), state)
	if err != nil {
		return nil, err
	}
	return fifo.NewLossy(front, spill), nil
}

func (p *pipeline) buildSpill(events int, size, onDisk int64, state string) (*fifo.Spill[*event.Message], error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("state.path: %w", err)
	}
	spill, err := fifo.NewSpill(fifo.SpillOptions[*event.Message]{
		Path:     filepath.Join(state, "spill-"+p.name+".db"),
		MaxItems: max(2, events), MaxBytes: size, MaxDiskBytes: onDisk, Size: (*event.Message).Size,
		Encode: func(dst []byte, m *event.Message) ([]byte, error) { return m.AppendStored(dst) },
		Decode: event.ParseStored,
		Mark: func(m *event.Message) (source, position string) {
			if m.Origin.Source == "" {
				return "", ""
			}
			return p.cluster() + "/" + m.Origin.Source, m.Origin.Position
		},
		OnSettled: func(messages []*event.Message) {
			for _, m := range messages {
				p.settle(m)
			}
		},
		Receipt: func(m *event.Message) *event.Message { return &event.Message{Origin: m.Origin} },
		OnCorrupt: func(l fifo.Loss) []*event.Message {
			p.unreadable.Add(int64(l.Items()))
			return p.lostGaps(l)
		},
		Patience: spillPatience, Since: func(m *event.Message) time.Time { return m.Time },
		Hurry:  func() bool { return p.hurry != nil && p.hurry() },
		Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	if spill.Stats().Items > 0 {
		p.spilled = spill.Positions()
	}
	return spill, nil
}

// merged counts a message that was merged into a later one of its object, which settles it.
func (p *pipeline) merged(older *event.Message) {
	p.metrics.merged(older)
	p.settle(older)
}

// foldGap is event.FoldGap with the books kept: the gap event is in the queue too.
func (p *pipeline) foldGap(gaps []*event.Message, dropped *event.Message) []*event.Message {
	same := func(g *event.Message) bool { return event.FoldsInto(g, dropped) }
	counters := p.metrics.of(dropped)
	if n := slices.IndexFunc(gaps, same); n >= 0 {
		counters.unqueued(gaps[n])
		p.settle(dropped)
	}
	gaps = event.FoldGap(gaps, dropped)
	counters.queued(gaps[slices.IndexFunc(gaps, same)])
	return gaps
}

// attach adds the pipeline's handler to an informer, unless nothing of that resource can pass the filter. ctx ends
// when the process stops reading changes.
func (p *pipeline) attach(ctx context.Context, i *informer.Informer, ledger *checkpoint.Ledger, known engine.Knowledge) {
	f := p.filter.For(i.Resource())
	earlier := p.earlier(i.Resource(), known)
	if f.Never() && len(earlier) == 0 {
		ledger.Caught(p.name) // nothing of it is for this sink
		return
	}
	l := newListener(ctx, p, i.Source(), f, ledger, i.ResumesAt())
	l.inList = l.inList || i.Relists()
	l.watchChange, l.entering = known.WatchChange, i.Relists() || !known.Knows()
	if !i.Relists() { // otherwise the list is compared with what is older
		l.floor = known.Floor
	}
	switch {
	case len(earlier) > 0:
		l.refilter = &refilter{earlier: earlier, knows: known.Knows(), change: known.Change, objects: i.Objects, sent: map[types.UID]bool{}}
		i.AddChangedEventHandler(l)
	case known.Floor != "" && len(known.Filters) == 0:
		i.AddEventHandler(l)
	case known.Part || len(known.Filters) > 0:
		l.floor = ""
		i.AddChangedEventHandler(l)
	default:
		i.AddNewEventHandler(l)
	}
}

// earlier compiles the filters by which the sink may know a resource, other than its present one. One that can't be
// read any more is left out; if there is no other, the sink is sent an initial list.
func (p *pipeline) earlier(resource schema.GroupVersionResource, known engine.Knowledge) (earlier []*filter.ResourceFilter) {
	if p.old == nil {
		p.old = map[string]*filter.Filter{}
	}
	for _, text := range known.Filters {
		compiled, ok := p.old[text]
		if !ok {
			var err error
			if compiled, err = p.compileOld(text); err != nil {
				p.log.Warn("cannot read a filter that the sink had before: objects that passed it are not sent as left", "err", err)
			}
			p.old[text] = compiled
		}
		if compiled != nil {
			earlier = append(earlier, compiled.For(resource))
		}
	}
	return earlier
}

// left counts the events that the process leaves at its end: those that are on disk, and those that are not.
func (p *pipeline) left() (onDisk, lost int64) {
	lost = int64(p.queue.Stats().Items) + p.abandoned.Load()
	onDisk, _, _, _, _ = p.queue.SpillStats()
	return onDisk, max(0, lost-onDisk)
}

// onSettled adds f to what is called when an event was acknowledged. Call it before the drain runs.
func (p *pipeline) onSettled(f func(m *event.Message)) {
	count := p.drain.Hooks.OnSettled
	p.drain.Hooks.OnSettled = func(m *event.Message, sent time.Time, latency time.Duration) {
		count(m, sent, latency)
		f(m)
	}
}

// holdsUp makes each pipeline spill at once if the source's waiting for it would keep another one idle.
func holdsUp(pipelines []*pipeline) {
	for _, p := range pipelines {
		p.hurry = func() bool {
			return slices.ContainsFunc(pipelines, func(other *pipeline) bool {
				return other != p && other.queue.Idle() > starving
			})
		}
	}
}

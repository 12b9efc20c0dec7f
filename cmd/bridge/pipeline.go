package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"k8s.io/apimachinery/pkg/types"
)

// pipeline is one sink with all that belongs to it, in the order of the flow: filter, encoder, queue, drain, sink.
type pipeline struct {
	name    string
	filter  *filter.Filter
	encoder *event.Encoder
	queue   fifo.Queue[*event.Message]
	drain   *sinks.Drain
	stop    context.CancelFunc // ends the drain at once
	sink    sinks.Sink
	// destination tells where a message goes, for people; nil if there is no one place.
	destination *event.Template

	metrics *sinkMetrics
	log     *slog.Logger
	// abandoned counts events that were given up at shutdown before the queue took them.
	abandoned atomic.Int64
}

// newPipeline builds the pipeline of one configured sink. slot is the first decision slot that its filter may use.
func newPipeline(cfg *config.Config, s *config.Sink, m *metrics, redactor *event.Redactor, slot int, log *slog.Logger) (*pipeline, error) {
	p := &pipeline{name: s.Name, metrics: m.forSink(s.Name), log: log.With("sink", s.Name)}
	p.encoder = &event.Encoder{
		Cluster: cfg.Cluster, Payload: event.Payload(s.Payload), Content: event.Content(s.Content), Redactor: redactor,
	}
	var err error
	if p.filter, err = p.compileFilter(s, slot); err != nil {
		return nil, err
	}
	if err = p.buildSink(s); err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.Name, err)
	}
	p.queue = p.buildQueue(s.Buffer)
	p.drain = &sinks.Drain{Name: s.Name, Sink: p.sink, Queue: p.queue, Hooks: p.metrics.hooks(), Logger: log}
	return p, nil
}

func (p *pipeline) compileFilter(s *config.Sink, slot int) (*filter.Filter, error) {
	var rules []filter.Rule
	for _, f := range s.Filters {
		rules = append(rules, filter.Rule{Resources: f.Resources, Namespaces: f.Namespaces, Operations: f.Operations, When: f.When})
	}
	compiled, mistakes := filter.Compile(rules, filter.Options{
		Slot: slot, Logger: p.log, OnError: func(int, error) { p.metrics.errs.Inc() },
	})
	if len(mistakes) > 0 { // the configuration was checked, so there are none
		return nil, fmt.Errorf("sink %s: %w", s.Name, mistakes[0])
	}
	return compiled, nil
}

func (p *pipeline) buildQueue(b config.Buffer) fifo.Queue[*event.Message] {
	if b.Overflow == config.OverflowCompact {
		return fifo.NewCompacting(fifo.CompactingOptions[*event.Message, types.UID]{
			MaxItems: b.Events, MaxBytes: int64(b.Bytes), Size: (*event.Message).Size,
			Key:       func(m *event.Message) types.UID { return m.Identity.UID },
			Mergeable: event.Mergeable, Merge: event.Merge, OnMerge: p.metrics.merged,
		})
	}
	options := fifo.RingOptions[*event.Message]{
		MaxItems: b.Events, MaxBytes: int64(b.Bytes), Size: (*event.Message).Size, OnDrop: p.metrics.dropped,
	}
	if b.Overflow == config.OverflowDropOldest {
		options.Overflow = fifo.DropOldest
		options.Gap = p.foldGap
	}
	return fifo.NewRing(options)
}

// foldGap is event.FoldGap with the books kept: the gap events are in the queue too.
func (p *pipeline) foldGap(gaps []*event.Message, dropped *event.Message) []*event.Message {
	resource := dropped.Resource.GroupResource()
	same := func(g *event.Message) bool { return g.Resource.GroupResource() == resource }
	counters := p.metrics.of(dropped)
	if n := slices.IndexFunc(gaps, same); n >= 0 {
		counters.unqueued(gaps[n])
	}
	gaps = event.FoldGap(gaps, dropped)
	counters.queued(gaps[slices.IndexFunc(gaps, same)])
	return gaps
}

// attach adds the pipeline's handler to an informer, unless nothing of that resource can pass the filter. ctx ends
// when the process stops reading changes.
func (p *pipeline) attach(ctx context.Context, i *informer.Informer) {
	f := p.filter.For(i.Resource())
	if f.Never() {
		return
	}
	i.AddEventHandler(newListener(ctx, p, i.Resource(), f))
}

// left counts the events that the process gives up at its end.
func (p *pipeline) left() int64 { return int64(p.queue.Stats().Items) + p.abandoned.Load() }

// onSettled adds f to what is called when an event was acknowledged. Call it before the drain runs.
func (p *pipeline) onSettled(f func(m *event.Message)) {
	count := p.drain.Hooks.OnSettled
	p.drain.Hooks.OnSettled = func(m *event.Message, sent time.Time, latency time.Duration) {
		count(m, sent, latency)
		f(m)
	}
}

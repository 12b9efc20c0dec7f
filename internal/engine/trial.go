package engine

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Trial shows what a sink would be sent. It goes the way of events up to the queue, and sends nothing.
type Trial struct{ pipeline *pipeline }

// Change is a change of an object, as an informer hands it on.
type Change struct {
	Resource schema.GroupVersionResource
	Type     event.Type     // Added, Updated, Deleted or Restated
	Old, Now *object.Object // Old is nil but for updates
	// Selected: the API server selects the objects of the informer that watches this one.
	Selected bool
}

// NewTrial makes the trial of a sink. index gives what other objects say of one; nil: nothing.
func NewTrial(s Sink, index *enrich.Index) (*Trial, error) {
	of := shared{metrics: metrics.New("", ""), books: noBooks{}, log: slog.New(slog.DiscardHandler)}
	if index != nil {
		of.enrichment = &enrichment{index: index}
	}
	p, err := newPipeline(s, of, object.Slots) // beyond the slots: nothing is remembered
	if err != nil {
		return nil, err
	}
	p.stop() // nothing is delivered
	return &Trial{p}, nil
}

// Filter is that of the sink.
func (t *Trial) Filter() *filter.Filter { return t.pipeline.filter }

// Message returns what the sink would be sent of a change; nil if that is nothing.
func (t *Trial) Message(ctx context.Context, c Change) (*event.Message, error) {
	p := t.pipeline
	p.queue = memoryQueue{fifo.NewRing(fifo.RingOptions[*event.Message]{MaxItems: 8})}
	source := informer.Source{Name: "trial", Resource: c.Resource}
	if c.Selected {
		source.LabelSelector = "selected" // what it selects was decided before: that it does is what counts
	}
	ledger := ledger.New(ledger.Source{}, ledger.State{}, []string{p.name}, 0)
	l := newListener(ctx, p, source, p.filter.For(c.Resource), ledger, "")
	switch {
	case l.filter.Never():
	case c.Type == event.Added:
		l.OnAdd(c.Now, false)
	case c.Type == event.Updated:
		l.OnUpdate(c.Old, c.Now)
	case c.Type == event.Restated:
		(&restating{listener: l}).OnRestate(c.Now)
	default:
		l.OnDelete(c.Now)
	}
	if p.queue.Stats().Items == 0 {
		return nil, nil
	}
	batch, err := p.queue.Take(ctx, nil, 1, 1<<40)
	if err != nil {
		return nil, err
	}
	return batch[0], nil
}

// memoryQueue is a queue that has no file.
type memoryQueue struct{ fifo.Queue[*event.Message] }

func (memoryQueue) Run(context.Context) error { return nil }
func (memoryQueue) Persist()                  {}
func (memoryQueue) SpillStats() (items, bytes, fileBytes, errors int64, lastErr string) {
	return 0, 0, 0, 0, ""
}

// noBooks are the books of a pipeline whose events nobody counts.
type noBooks struct{}

func (noBooks) Settle(string, *event.Message) {}
func (noBooks) ClusterUID() string            { return "" }
func (noBooks) States() []ledger.State        { return nil }

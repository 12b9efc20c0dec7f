package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Trial determines the message that a sink would be sent. A change passes through the same code as in the running
// bridge, up to the queue.
type Trial struct{ pipeline *pipeline }

// Change is a change to an object, as an informer reports it.
type Change struct {
	Resource schema.GroupVersionResource
	Type     event.Type     // Added, Updated, Deleted or Restated
	Old, Now *object.Object // Old is used only for updates
	// Selected reports whether the informer that watches the object has a label or field selector.
	Selected bool
}

// NewTrial returns a Trial for a sink. clusterUID is the uid of the cluster, or empty if it is not known. index
// enriches the events. If index is nil, events are not enriched.
func NewTrial(s Sink, clusterUID string, index *enrich.Index) (*Trial, error) {
	e := newOffline()
	if index != nil {
		e.enrichment = &enrichment{index: index}
	}
	p, err := e.newPipeline(s, object.Slots) // a slot number beyond the last slot means that decisions are not cached
	if err != nil {
		return nil, err
	}
	p.clusterUID = clusterUID
	return &Trial{p}, nil
}

// SelectNamespaces tells the filter which namespaces exist, and with which labels. Without it, a namespaceSelector
// selects none.
func (t *Trial) SelectNamespaces(existing filter.Namespaces) {
	p := t.pipeline
	p.filter = p.filter.WithNamespaces(existing, func(string) bool { return false })
}

// Filter returns the filter of the sink.
func (t *Trial) Filter() *filter.Filter { return t.pipeline.filter }

// Message returns the message that the sink would be sent about a change. It returns nil if the sink would be sent no
// message.
func (t *Trial) Message(ctx context.Context, c Change) *event.Message {
	p := t.pipeline
	var message *event.Message
	p.push = func(_ context.Context, m *event.Message) error {
		message = m
		return nil
	}
	source := informer.Source{Name: "trial", Resource: c.Resource}
	if c.Selected {
		// Any selector works, because the caller has already decided which objects are selected.
		source.LabelSelector = "selected"
	}
	ledger := ledger.New(ledger.Source{}, ledger.State{}, []string{p.Name}, 0)
	l := newListener(ctx, p, source, ledger, "")
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
	return message
}

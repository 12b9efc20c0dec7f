package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Rehearsal determines the messages that all sinks would be sent about a sequence of changes. The changes pass through
// the same code as in the running bridge, from the informers up to the queues. Use it from one goroutine.
type Rehearsal struct {
	engine *Engine
	names  []string // of the sinks
}

// RehearsalOptions configures a [Rehearsal].
type RehearsalOptions struct {
	Sinks []Sink // new sinks, which know no objects
	Enrichment
	ClusterUID string // empty if it is not known
	Time       time.Time
	// Deliver is called with each message. All messages have the time Time.
	Deliver func(sink string, m *event.Message)
}

// NewRehearsal returns a Rehearsal.
func NewRehearsal(o RehearsalOptions) (*Rehearsal, error) {
	e := newOffline()
	e.reading, e.stopReading = context.WithCancel(context.Background())
	e.enrichment = newEnrichment(e.reading, o.Enrichment, o.Sinks, func() {})
	r := &Rehearsal{engine: e}
	err := e.addPipelines(o.Sinks, func(p *pipeline) error {
		r.names = append(r.names, p.Name)
		p.clusterUID = o.ClusterUID
		p.push = func(_ context.Context, m *event.Message) error {
			m.Time = o.Time
			o.Deliver(p.Name, m)
			return nil
		}
		return nil
	})
	return r, err
}

// Attach connects an informer to the sinks. It must be called for all informers before the first one is used.
func (r *Rehearsal) Attach(i *informer.Informer) {
	l := ledger.New(ledger.Source{}, ledger.State{}, r.names, 0)
	r.engine.attachTo(i, l, func(string) tracker.Knowledge { return tracker.Knowledge{} })
}

// SelectNamespaces tells the filters of the sinks which namespaces exist, and with which labels. The sinks are sent the
// difference if other namespaces are selected now.
func (r *Rehearsal) SelectNamespaces(existing filter.Namespaces) {
	for _, p := range r.engine.pipelines {
		next := p.filter.WithNamespaces(existing, func(string) bool { return true })
		if next == p.filter {
			continue
		}
		p.filter = next
		for _, name := range slices.Sorted(maps.Keys(p.attached)) {
			if l := p.attached[name]; l != nil {
				l.changeFilter(next.For(l.source.Resource), rehearsedChange)
			}
		}
	}
}

// rehearsedChange is the name of all changes of filters in a Rehearsal. In the running bridge, names are unique.
const rehearsedChange = "change"

// Restate re-sends an object of an informer to the sinks, as a resync does.
func (r *Rehearsal) Restate(i *informer.Informer, o *object.Object) {
	for _, p := range r.engine.pipelines {
		if l := p.attached[i.Source().Name]; l != nil {
			(&restating{listener: l}).OnRestate(o)
		}
	}
}

// Filters returns the filters of the sinks, in the order of the sinks.
func (r *Rehearsal) Filters() (filters []*filter.Filter) {
	for _, p := range r.engine.pipelines {
		filters = append(filters, p.filter)
	}
	return filters
}

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
)

// Rehearsal determines the messages that all sinks would be sent about a sequence of changes. The changes pass through
// the same code as in the running bridge, from the informers up to the queues. Use it from one goroutine.
type Rehearsal struct {
	engine *Engine
	names  []string // of the sinks
}

// NewRehearsal returns a Rehearsal for new sinks, which know no objects. of must not wait for resources (Awaited).
// deliver is called with each message. The message has the given time, so that it is always the same.
func NewRehearsal(
	all []Sink, of Enrichment, at time.Time, deliver func(sink string, m *event.Message),
) (*Rehearsal, error) {
	e := newOffline()
	e.reading, e.stopReading = context.WithCancel(context.Background())
	e.enrichment = newEnrichment(e.reading, of, all, func() {})
	r := &Rehearsal{engine: e}
	err := e.addPipelines(all, func(p *pipeline) error {
		r.names = append(r.names, p.Name)
		p.push = func(_ context.Context, m *event.Message) error {
			m.Time = at
			deliver(p.Name, m)
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

// Filters returns the filters of the sinks, by the names of the sinks.
func (r *Rehearsal) Filters() map[string]*filter.Filter {
	filters := map[string]*filter.Filter{}
	for _, p := range r.engine.pipelines {
		filters[p.Name] = p.filter
	}
	return filters
}

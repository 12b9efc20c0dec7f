package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// pipeline contains all parts that work for one sink, in the order in which events pass them: filter, encoder, and
// delivery.
type pipeline struct {
	Sink
	*delivery.Delivery

	filter *filter.Filter
	// filtering is held while the filter changes, and while listeners are attached.
	filtering sync.Mutex
	// attached contains the listeners by the names of their sources. It is nil for sources that are watched only for
	// enrichment.
	attached map[string]*listener
	// debounces reports whether updates may wait. If hurry is set, those that wait are sent soon.
	debounces bool
	hurry     atomic.Bool
	push      func(context.Context, *event.Message) error // Queue.Push, except in a Rehearsal
	// enrich returns the context of an object for enriched events. It is nil if the sink does not require enrichment.
	enrich    func(schema.GroupVersionResource, *object.Object) *event.Context
	restating chan struct{} // contains an element while objects are re-sent to the sink
	progress  progress
	audit     *auditread.Reader // nil unless the sink is sent audit events

	// clusterUID and epoch are copied to the messages that listeners encode. They are set before the first listener
	// exists.
	clusterUID, epoch string

	tracker *tracker.Tracker // nil except in an Engine
	// old contains earlier filters of the sink by their string form. The value is nil if a filter cannot be compiled.
	old map[string]*filter.Filter

	run        string        // a random name of this engine
	deliveries atomic.Uint64 // number of restated events
}

// newPipeline returns a pipeline whose delivery is not open, unless it is kept. It does no I/O. slot is the first
// decision slot that the pipeline's filter may use.
func (e *Engine) newPipeline(s Sink, slot int) (*pipeline, error) {
	p := &pipeline{
		Sink:      s,
		enrich:    e.enrichment.forSink(s.Enrich),
		restating: make(chan struct{}, 1),
		tracker:   e.tracker,
		old:       map[string]*filter.Filter{},
		attached:  map[string]*listener{},
		run:       randomName() + "-",
		progress:  progress{every: s.Progress, sources: e.progressSources, positions: map[string]position{}},
	}
	if p.Delivery = e.options.Kept.of(s.Name); p.Delivery == nil {
		p.Delivery = e.newDelivery(s)
		e.use(p)
	}
	p.Encoder.OnOldMissing = func(err error) {
		p.Log.Error("cannot read the state before an update, so the change is sent without it", "err", err)
	}
	rules := s.changeRules()
	if p.debounces = p.tracker != nil; p.debounces {
		rules = withSelection(rules, p.tracker.StoredFilter(s.Name))
	}
	var err error
	if p.filter, err = p.compile(rules, slot); err != nil {
		return nil, fmt.Errorf("sink %s: %w", s.Name, err)
	}
	if s.Audit {
		if p.audit, err = e.newAuditReader(p); err != nil {
			return nil, fmt.Errorf("sink %s: %w", s.Name, err)
		}
	}
	return p, nil
}

// newDelivery returns a delivery that is not open.
func (e *Engine) newDelivery(s Sink) *delivery.Delivery {
	o := &e.options
	return delivery.New(delivery.Options{
		Sink: s.Name, Cluster: o.Cluster, State: o.State, Buffer: s.Buffer, Destination: s.Destination,
		Rejections: s.Rejections, Disconnect: s.Disconnect, Anywhere: o.AuditOnly, Leads: o.Leads, Store: o.Store,
		Metrics: e.metrics.ForSink(s.Name), Logger: o.Logger.With("sink", s.Name),
	})
}

// use makes the pipeline's delivery use this engine.
func (e *Engine) use(p *pipeline) {
	p.Use(delivery.User{
		Tracker: e.tracker, Settle: p.settle, OnSettled: e.options.OnSettled, Progress: p.progressEvents, Lost: p.lostGaps,
		Arrived: func(destination string) error { _, err := p.leave(destination); return err },
	})
}

// open opens the delivery, unless it was kept, and prepares it for reading back. A crash can bring audit events of the
// last second again, so a sink that is sent audit events does not read back.
func (p *pipeline) open() error {
	if p.Queue == nil {
		if err := p.Open(); err != nil {
			return err
		}
		if p.audit == nil {
			p.ReadBack(strings.HasPrefix(p.tracker.Destination(p.Name), partOf))
		}
	}
	p.push = p.Queue.Push
	return nil
}

// settle records that the sink has settled a message.
func (p *pipeline) settle(m *event.Message) {
	if p.audit != nil {
		p.audit.Settle(m)
	} else {
		p.tracker.Settle(p.Name, m)
	}
}

func randomName() string { return strings.ToLower(rand.Text()[:8]) }

// compile compiles filter rules. The filter sees only the part of an object that the sink may see.
func (p *pipeline) compile(rules []filter.Rule, slot int) (*filter.Filter, error) {
	compiled, mistakes := filter.Compile(rules, filter.Options{
		Slot: slot, Bytes: p.Seen, Logger: p.Log, OnError: func(int, error) { p.Metrics.FilterErrors.Inc() },
	})
	if len(mistakes) > 0 { // never happens, because the configuration was validated
		return nil, mistakes[0]
	}
	return compiled, nil
}

// filterText returns the string form of a sink's filter, as it is stored in the checkpoint. compileOld parses it.
func filterText(rules []filter.Rule) string {
	text, _ := json.Marshal(rules) // structs of strings can always be marshaled
	return string(text)
}

// compileOld compiles a filter from its string form. The sink had this filter before its configuration was changed.
func (p *pipeline) compileOld(text string) (*filter.Filter, error) {
	var rules []filter.Rule
	if err := json.Unmarshal([]byte(text), &rules); err != nil {
		return nil, err
	}
	return p.compile(rules, object.Slots) // a slot number beyond the last slot means that decisions are not cached
}

// label sets the fields that a message has in addition to its event. history is the history of the event's source.
// delivery is Event.Delivery.
func (p *pipeline) label(m *event.Message, history, delivery string) {
	m.ClusterUID, m.Epoch, m.History = p.clusterUID, p.epoch, history
	if history != "" { // an event from before etcd was restored can have the same id
		m.Epoch += "." + history
	}
	if m.Delivery = delivery; m.Type == event.Restated {
		m.Delivery = p.run + strconv.FormatUint(p.deliveries.Add(1), 36)
	}
}

// attach adds a listener to an informer. If no object of the informer's resource can pass the filter or an earlier
// filter, it adds none. ctx ends when the process stops reading changes. It must be called with filtering held.
func (p *pipeline) attach(ctx context.Context, i *informer.Informer, ledger *ledger.Ledger, known tracker.Knowledge) {
	earlier := p.earlier(i.Resource(), known.Filters)
	if len(earlier) == 0 {
		ledger.EndRefilter(p.Name)
	}
	if p.filter.For(i.Resource()).Never() && len(earlier) == 0 {
		ledger.FinishList(p.Name) // none of the resource's objects are sent to this sink
		return
	}
	p.progress.attach(i.Source())
	l := newListener(ctx, p, i.Source(), ledger, i.ResumesAt())
	l.succeeds, p.attached[i.Source().Name] = p.attached[i.Source().Name], l
	l.informer, l.inList, l.change = i, l.inList || i.Relists(), known.Change
	l.watchChange, l.entering = known.WatchChange, i.Relists() || !known.Knows()
	if !i.Relists() { // otherwise the informer compares the list with states that are older than the floor
		l.floor = known.Floor
	}
	l.setRefilter(earlier, p.earlier(i.Resource(), known.Former), known)
	differs := len(known.Filters) > 0 && !known.Settled // also if no earlier filter can be compiled
	switch {
	case l.refilter != nil:
		if i.Relists() {
			i.AddEventHandler(l) // the changes that the list reveals are sent before the difference
		} else {
			i.AddEventHandlerWithReplay(l, true)
		}
	case known.Floor != "" && !differs:
		i.AddEventHandler(l)
	case known.Part || differs:
		l.floor, l.partial = "", i.Relists()
		i.AddEventHandlerWithReplay(l, true)
	default:
		i.AddEventHandlerWithReplay(l, false)
	}
}

// listening returns the listeners that are attached.
func (p *pipeline) listening() (listeners []*listener) {
	p.filtering.Lock()
	defer p.filtering.Unlock()
	for _, l := range p.attached {
		if l != nil {
			listeners = append(listeners, l)
		}
	}
	return listeners
}

// earlier compiles the filters, other than the current one, through which the sink may know a resource. A filter that
// can no longer be compiled is left out. If no filter remains, the sink is sent an initial list.
func (p *pipeline) earlier(of schema.GroupVersionResource, filters []string) (earlier []*filter.ResourceFilter) {
	for _, text := range filters {
		compiled, ok := p.old[text]
		if !ok {
			var err error
			if compiled, err = p.compileOld(text); err != nil {
				p.Log.Warn("cannot compile a previous filter of the sink; objects that only that filter passed get no leave event",
					"err", err)
			}
			p.old[text] = compiled
		}
		if compiled != nil {
			earlier = append(earlier, compiled.For(of))
		}
	}
	return earlier
}

// undelivered returns the number of events that were not delivered, including parked ones, and those in the audit
// journal up to journalEnd. The drain must have ended, and the store of parked events must be open.
func (p *pipeline) undelivered(journalEnd uint64) (events int64) {
	onDisk, lost := p.Left()
	if p.audit != nil {
		lost = p.audit.BacklogUpTo(journalEnd) // nothing is lost: what is not on disk is in the journal
	}
	return onDisk + lost + p.Parked()
}

package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// listener is the handler that joins one informer to one pipeline: it filters changes, encodes them once and pushes
// them to the pipeline's queue. The informer calls it from one goroutine; a push that waits holds the informer up.
type listener struct {
	// ctx ends when the process stops reading changes. Informers then hand over nothing more, and queues take up what
	// still comes (see fifo.Queue.Lift).
	ctx      context.Context //nolint:containedctx // client-go's handlers are called without one
	pipeline *pipeline
	resource schema.GroupVersionResource
	filter   *filter.ResourceFilter
	counters *metrics.Resource
	ledger   *ledger.Ledger
	source   string
	// namespace is the one that the informer watches; empty: all.
	namespace string
	selected  bool // the API server selects objects by label or field
	// floor is the resourceVersion up to which the sink has settled everything in an earlier life; empty once the
	// informer is past it. Changes below are not sent again.
	floor string
	// watchChange names the last change of what is watched, for the ids of what it adds or makes leave; empty: it never changed.
	watchChange string
	// entering: what is added in a list is new to the sink, or to what is watched.
	entering bool
	// refilter is set while the sink is still to be sent what the change of its filter makes of a difference.
	refilter *refilter
	log      *slog.Logger

	// filtered calls OnAdd, OnUpdate and OnDelete of sender with what the change is for this sink.
	filtered cache.FilteringResourceEventHandler
	// now is the new state of the update that is being filtered; nil outside of updates. It tells a leave (the
	// object lives on, and this state does not pass) from a deletion.
	now *object.Object
	// sent: the change that is being filtered was pushed.
	sent bool
	// position is the last one that the informer reached, and inList says that it is being given a list, whose changes
	// have no position of their own.
	position string
	inList   bool
}

var (
	_ cache.ResourceEventHandler = (*listener)(nil)
	_ informer.Observer          = (*listener)(nil)
	_ informer.Leaver            = (*listener)(nil)
	_ informer.Positioner        = (*listener)(nil)
)

// newListener makes the handler. at is the position from which the informer resumes; empty if it begins with a list.
func newListener(ctx context.Context, p *pipeline, source informer.Source, f *filter.ResourceFilter, ledger *ledger.Ledger, at string) *listener {
	resource := source.Resource
	l := &listener{
		ctx: ctx, pipeline: p, resource: resource, filter: f, ledger: ledger, source: source.Name, namespace: source.Namespace,
		selected: source.LabelSelector != "" || source.FieldSelector != "",
		position: at, inList: at == "",
		counters: p.metrics.Resource(resource.GroupResource()), log: p.log,
	}
	l.filtered = cache.FilteringResourceEventHandler{FilterFunc: f.Belongs, Handler: sender{l}}
	return l
}

func (l *listener) OnAdd(obj any, initial bool) {
	if l.refilter != nil {
		if !initial { // what exists comes in tryRefilter
			l.pass(func() { l.refilterChange(nil, obj.(*object.Object)) })
		}
		return
	}
	l.pass(func() { l.filtered.OnAdd(obj, initial) })
}

func (l *listener) OnUpdate(oldObj, newObj any) {
	if l.refilter != nil {
		l.pass(func() { l.refilterChange(oldObj.(*object.Object), newObj.(*object.Object)) })
		return
	}
	l.now, _ = newObj.(*object.Object)
	l.pass(func() { l.filtered.OnUpdate(oldObj, newObj) })
	l.now = nil
}

func (l *listener) OnDelete(obj any) {
	if l.refilter != nil {
		l.pass(func() { l.refilterChange(obj.(*object.Object), nil) })
		return
	}
	l.pass(func() { l.filtered.OnDelete(obj) })
}

// OnLeave implements informer.Leaver: for the sink it is as if the object had left its filter.
func (l *listener) OnLeave(last, now *object.Object) {
	l.now = now
	l.OnDelete(last)
	l.now = nil
}

// pass counts a change and what the filter made of it.
func (l *listener) pass(change func()) {
	l.counters.Received.Inc()
	l.sent = false
	change()
	if !l.sent {
		l.counters.Filtered.Inc()
	}
}

// OnSynced tells the sink where the initial list of this resource, or of the namespace that the informer watches, ends.
func (l *listener) OnSynced(resourceVersion string, objects int) {
	if l.refilter != nil {
		if !l.inList { // a list ends in OnPosition; what is known before it may be of another scope
			l.position = resourceVersion
			l.tryRefilter()
		}
		return
	}
	l.synced(resourceVersion, objects)
}

func (l *listener) synced(resourceVersion string, objects int) {
	l.push(event.Event{Type: event.Synced, SyncedInfo: &event.SyncedInfo{
		Resource: event.GroupResource(l.resource), Namespace: l.namespace, ResourceVersion: resourceVersion, Objects: objects,
	}})
	l.ledger.FinishList(l.pipeline.name)
}

// OnPosition implements informer.Positioner.
func (l *listener) OnPosition(resourceVersion string) {
	l.position, l.inList, l.entering = resourceVersion, false, false
	l.tryRefilter()
	if tracker.Past(l.floor, resourceVersion) {
		l.floor = ""
	}
}

// OnGap tells the sink where states may be missing.
func (l *listener) OnGap(from, to, why string) {
	l.inList = true
	l.floor = "" // everything in the list is sent, again if need be: a part of it would end in the wrong state
	if tracker.WentBack(from, to) {
		l.position = ""
	}
	if mutant.On("no-gap") {
		return
	}
	l.push(event.Event{Type: event.Gap, GapInfo: &event.GapInfo{
		Resource: event.GroupResource(l.resource), From: from, To: to, Reason: event.ReasonRelist, Message: why,
	}})
}

// sender receives what passed the conditions on the object: what a change is for this sink.
type sender struct{ *listener }

func (s sender) OnAdd(obj any, initial bool) {
	ev := event.Event{Type: event.Added, Object: obj.(*object.Object), InitialList: initial}
	if s.entering && (initial || s.inList) {
		ev.Change = s.watchChange
	}
	s.send(ev)
}

func (s sender) OnUpdate(oldObj, newObj any) {
	s.send(event.Event{Type: event.Updated, Object: newObj.(*object.Object), Old: oldObj.(*object.Object)})
}

func (s sender) OnDelete(obj any) {
	if s.now != nil && mutant.On("no-leave") {
		return
	}
	s.send(s.deletion(obj.(*object.Object)))
}

func (s sender) deletion(o *object.Object) event.Event {
	ev := event.Event{Type: event.Deleted, Object: o}
	if s.now != nil {
		ev.LeftAt = s.now.ResourceVersion
		if leftUnchanged(ev) {
			ev.Change = s.watchChange
		}
	}
	return ev
}

// send pushes the change if the conditions on the change hold.
func (l *listener) send(ev event.Event) {
	if reason := l.filter.Refusal(ev.Type, ev.Old, ev.Object); reason != "" {
		l.counters.Suppressed.WithLabelValues(reason).Inc()
		return
	}
	l.sent = true
	l.push(ev)
}

// push encodes the event and puts it into the queue. It returns the time that the event says; zero if the event itself was not
// pushed.
func (l *listener) push(ev event.Event) (told time.Time) {
	if l.settledBefore(ev) {
		return told
	}
	ev.Time, ev.Resource, ev.Selected = time.Now(), l.resource, l.selected
	if l.pipeline.enrich != nil && ev.Object != nil {
		ev.Context = l.pipeline.enrich(l.resource, ev.Object)
	}
	told = ev.Time
	m, err := l.pipeline.encoder.Encode(ev)
	if err != nil {
		m, told = l.unencodable(ev, err), time.Time{}
	}
	m.Origin = event.Origin{Source: l.source, Position: l.positionOf(ev), Seq: l.ledger.Track(l.pipeline.name, ev.Time)}
	l.counters.Queue(m)
	if err = l.pipeline.queue.Push(l.ctx, m); err != nil { // only at shutdown: the queue is closed
		l.counters.Unqueue(m)
		l.pipeline.abandoned.Add(1)
		return time.Time{}
	}
	return told
}

// settledBefore reports whether the sink has settled an event in an earlier life. Deletions that were not seen have no
// resourceVersion to tell: they are repeated, under their id.
func (l *listener) settledBefore(ev event.Event) bool {
	if l.floor == "" || mutant.On("repeat-settled") || ev.Type.IsControl() || ev.Type == event.Restated || ev.InitialList || ev.Object.FinalStateUnknown || leftUnchanged(ev) {
		return false
	}
	return !tracker.Past(l.floor, stateVersion(ev)) || l.floor == stateVersion(ev)
}

// leftUnchanged reports whether an event is the leave of an object that is not known to have changed: what is watched or what passes
// the filter has.
func leftUnchanged(ev event.Event) bool {
	return ev.LeftAt != "" && ev.LeftAt == ev.Object.ResourceVersion
}

// stateVersion is the resourceVersion of the state to which an event leads.
func stateVersion(ev event.Event) string {
	if ev.LeftAt != "" {
		return ev.LeftAt
	}
	return ev.Object.ResourceVersion
}

// positionOf is the position that the source has reached when an event is settled: the resourceVersion of a change that
// the watch brought, and for all else, which comes in lists or is told once more, the position before.
func (l *listener) positionOf(ev event.Event) string {
	switch {
	case ev.InitialList && !ev.Again:
		return "" // a sink that has a part of its initial list begins it again
	case l.inList || ev.Again || ev.Type.IsControl() || ev.Type == event.Restated || ev.Object.FinalStateUnknown || leftUnchanged(ev):
		return l.position
	default:
		return stateVersion(ev)
	}
}

// unencodable makes the gap event that takes the place of an object whose JSON can't be used.
func (l *listener) unencodable(ev event.Event, cause error) *event.Message {
	l.log.Error("object can't be encoded, a gap event goes in its place", "err", cause)
	l.counters.Rejected.Inc()
	l.counters.NotSent.Add(1)
	m := &event.Message{
		Type: ev.Type, Time: ev.Time, Resource: ev.Resource, Cluster: l.pipeline.encoder.Cluster, ClusterUID: l.pipeline.encoder.ClusterUID,
		Identity: ev.Object.Identity, ID: string(ev.Object.UID) + "." + ev.Object.ResourceVersion,
		Structured: l.pipeline.encoder.Content == event.ContentStructured,
	}
	if key := l.pipeline.encoder.PartitionKey; key != nil {
		m.PartitionKey = key.Expand(m)
	}
	return event.RefusalGap(m, event.ReasonRefused, cause.Error(), "")
}

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/client-go/tools/cache"
)

// listener is the handler that connects one informer to one pipeline. It filters changes, encodes each event once, and
// pushes the events to the pipeline's queue. The informer calls it from one goroutine, so a push that blocks also
// blocks the informer.
type listener struct {
	predecessor

	// mu is held while the informer calls the listener, and while updates are sent that have waited. The fields that the
	// informer changes can be read without it while the informer's lock is held.
	mu    sync.Mutex
	waits waitingUpdates
	// succeeds is the listener of the informer's predecessor, which can still run while the informer does not. It is nil
	// if there is none, and when everything that has waited in it was sent.
	succeeds *listener

	// ctx ends when the process stops reading changes. Informers then pass on no more changes, and queues accept the
	// changes that are still being pushed (see fifo.Queue.Lift).
	ctx      context.Context //nolint:containedctx // client-go's handlers are called without one
	pipeline *pipeline
	informer *informer.Informer
	source   informer.Source
	filter   *filter.ResourceFilter
	counters *metrics.Resource
	ledger   *ledger.Ledger
	// watchChange is the name of the last change to the watch configuration; empty if it never changed. It becomes part of
	// the event ids for objects that this change adds or removes.
	watchChange string
	// entering reports whether objects that first appear in a list are new to the sink or to the watched scope.
	entering bool
	// partial reports whether the sink may have been sent a part of the known objects, and waits for an initial list.
	// Until then, it is only sent the objects that left its filter or were deleted since they became known.
	partial bool
	// change is the name of the filter change that led to filter; empty if there was none.
	change string
	// refilter is set until the sink was sent the difference that its new filter makes.
	refilter *refilter

	// sent reports whether the change that is being filtered was pushed.
	sent bool
	// position is the last position that the informer reached. inList reports whether the informer is passing on a list.
	// The changes in a list have no positions of their own.
	position string
	inList   bool
}

var (
	_ cache.ResourceEventHandler = (*listener)(nil)
	_ informer.Observer          = (*listener)(nil)
	_ informer.Leaver            = (*listener)(nil)
	_ informer.Positioner        = (*listener)(nil)
	_ informer.Resumer           = (*listener)(nil)
)

// newListener returns a listener. at is the position from which the informer resumes. It is empty if the informer
// begins with a list.
func newListener(ctx context.Context, p *pipeline, source informer.Source, to *ledger.Ledger, at string) *listener {
	return &listener{
		ctx:      ctx,
		pipeline: p,
		source:   source,
		filter:   p.filter.For(source.Resource),
		counters: p.Metrics.Resource(source.Resource.GroupResource()),
		ledger:   to,
		position: at,
		inList:   at == "",
	}
}

// begin locks mu for a call of the informer. If the informer has a predecessor, that one has ended, so what still waits
// there is sent before anything that follows.
func (l *listener) begin() {
	l.mu.Lock()
	if l.succeeds != nil {
		l.succeeds.finish()
		l.succeeds = nil
	}
}

// finish sends everything that waits.
func (l *listener) finish() {
	l.begin()
	l.mu.Unlock()
	l.pushDue(true)
}

func (l *listener) OnAdd(obj any, initial bool) {
	l.begin()
	defer l.mu.Unlock()
	o := obj.(*object.Object)
	switch {
	case l.refilter == nil:
		l.pass(func() {
			if l.filter.Belongs(o) {
				l.enter(o, initial)
			} else {
				l.endIfFound(l.former, o)
			}
		})
	case !initial: // existing objects are sent by tryRefilter
		l.pass(func() { l.refilterChange(nil, o) })
	}
}

func (l *listener) OnUpdate(oldObj, newObj any) {
	l.begin()
	defer l.mu.Unlock()
	old, now := oldObj.(*object.Object), newObj.(*object.Object)
	l.pass(func() {
		if l.refilter != nil {
			l.refilterChange(old, now)
			return
		}
		switch passes, passed := l.filter.Belongs(now), l.filter.Belongs(old); {
		case passes && l.partial: // the initial list contains the object
		case passes && passed:
			l.send(event.Event{Type: event.Updated, Object: now, Old: old})
		case passes:
			l.enter(now, false)
		case passed && !mutant.On("no-leave"):
			l.send(l.deletion(old, now))
		default:
			l.endIfFound(l.former, now)
		}
	})
}

func (l *listener) OnDelete(obj any) { l.remove(obj.(*object.Object), nil) }

// OnLeave implements informer.Leaver. The sink is sent the same event as if the object had left its filter.
func (l *listener) OnLeave(last, now *object.Object) { l.remove(last, now) }

// remove sends the event for an object that was deleted or that left the watched scope. now is the object's new state,
// or nil if the object was deleted.
func (l *listener) remove(last, now *object.Object) {
	l.begin()
	defer l.mu.Unlock()
	l.pass(func() {
		switch {
		case l.refilter != nil:
			l.refilterRemoval(last, now)
		case l.filter.Belongs(last) && (now == nil || !mutant.On("no-leave")):
			l.send(l.deletion(last, now))
		case now == nil && l.former != nil: // the previous process may have sent a later state, which passed
			l.leave(event.Event{Type: event.Deleted, Object: last, IfFound: true})
		}
	})
}

// pass counts a change as received, calls change, and counts the change as filtered if no event was pushed.
func (l *listener) pass(change func()) {
	l.counters.Received.Inc()
	l.sent = false
	change()
	if !l.sent {
		l.counters.Filtered.Inc()
	}
}

// OnSynced sends the synced event that ends the initial list of the resource, or of the namespace that the informer
// watches.
func (l *listener) OnSynced(resourceVersion string, objects int) {
	l.begin()
	defer l.mu.Unlock()
	l.partial = false
	if l.refilter != nil {
		if !l.inList { // a list ends in OnPosition; until then, the known objects may belong to another scope
			l.position = resourceVersion
			l.tryRefilter()
		}
		return
	}
	l.synced(resourceVersion, objects)
}

func (l *listener) synced(resourceVersion string, objects int) {
	l.push(event.Event{Type: event.Synced, SyncedInfo: &event.SyncedInfo{
		Resource: event.GroupResource(l.source.Resource), Namespace: l.source.Namespace,
		ResourceVersion: resourceVersion, Objects: objects,
	}})
	l.ledger.FinishRefilter(l.pipeline.Name, l.change, l.former != nil)
}

// OnPosition implements informer.Positioner.
func (l *listener) OnPosition(resourceVersion string) {
	l.begin()
	defer l.mu.Unlock()
	l.position, l.inList, l.entering = resourceVersion, false, false
	l.tryRefilter()
	if tracker.Past(l.floor, resourceVersion) {
		l.floor = ""
	}
	if l.refilter == nil && !l.partial { // otherwise the sink does not have the whole difference or initial list
		if u := l.waits.oldest(); u != nil {
			resourceVersion = u.position
		}
		l.pipeline.progress.reached(&l.source, resourceVersion)
	}
}

// IsBehind implements informer.Resumer. It reports whether the informer has not reached the floor.
func (l *listener) IsBehind() bool { return !tracker.Past(l.floor, l.position) }

// OnGap sends a gap event, which announces that states may be missing at this place in the stream. If the list is not
// newer than the floor, nothing is missing, and nothing of the list is sent.
func (l *listener) OnGap(from, to, why string) {
	l.begin()
	defer l.mu.Unlock()
	l.inList, l.listed = true, to
	switch {
	case tracker.WentBack(from, to):
		l.position, l.floor = "", ""
		l.pipeline.progress.startOver(&l.source)
		l.waits.forgetPositions()
	case l.refilter != nil:
		l.floor = ""
	case l.hasSettledUpTo(to):
		return
	}
	if mutant.On("no-gap") {
		return
	}
	l.push(event.Event{Type: event.Gap, GapInfo: &event.GapInfo{
		Resource: event.GroupResource(l.source.Resource), From: from, To: to, Reason: event.ReasonRelist, Message: why,
	}})
}

// enter sends the added event of an object that is new to the sink.
func (l *listener) enter(o *object.Object, initial bool) {
	ev := event.Event{Type: event.Added, Object: o, InitialList: initial}
	if l.entering && (initial || l.inList) {
		ev.Change = l.watchChange
	}
	l.send(ev)
}

// deletion returns the event that ends an object for the sink: a leave if now is set, or a deletion if now is nil. now
// is the state that does not pass the filter.
func (l *listener) deletion(last, now *object.Object) event.Event {
	ev := event.Event{Type: event.Deleted, Object: last}
	if now != nil {
		ev.LeftAt = now.ResourceVersion
		if leftUnchanged(ev) {
			ev.Change, ev.Final = l.watchChange, true
		}
	}
	return ev
}

// send pushes ev, unless the filter suppresses it, or makes it wait.
func (l *listener) send(ev event.Event) {
	if reason := l.filter.Refusal(ev.Type, ev.Old, ev.Object); reason != "" {
		l.counters.Suppressed.WithLabelValues(reason).Inc()
		l.noteRefused(ev)
		return
	}
	if l.debounce(ev) {
		return
	}
	l.sent = true
	if u := l.waits.byUID[ev.Object.UID]; u != nil && ev.Type == event.Updated {
		ev.Old = u.old
	}
	l.push(ev)
}

// push encodes an event and puts it into the queue. It returns the time of the event. The time is zero if the event
// itself was not pushed.
func (l *listener) push(ev event.Event) (at time.Time) {
	if l.hasSettled(ev, l.inList) {
		return at
	}
	ev.Time, ev.Resource = time.Now(), l.source.Resource
	ev.Selected = l.source.LabelSelector != "" || l.source.FieldSelector != ""
	if l.pipeline.enrich != nil && ev.Object != nil {
		ev.Context = l.pipeline.enrich(ev.Resource, ev.Object)
	}
	at = ev.Time
	m, err := l.pipeline.Encoder.Encode(ev)
	l.pipeline.label(m, l.ledger.History(), ev.Delivery)
	if err != nil {
		l.pipeline.Log.Error("cannot encode the object, so a gap event is sent in its place", "err", err)
		l.counters.NotSent.Add(1)
		m, at = event.RefusalGap(m, event.ReasonRefused, err.Error(), ""), time.Time{}
	}
	seq, replaced := l.track(ev, m)
	m.Origin = event.Origin{Source: l.source.Name, Position: l.positionOf(ev), Seq: seq}
	l.counters.Queue(m)
	defer l.ledger.Settle(l.pipeline.Name, replaced)
	if err = l.pipeline.push(l.ctx, m); err != nil { // only during shutdown, when the queue is closed
		l.counters.Unqueue(m)
		l.pipeline.Abandoned.Add(1)
		return time.Time{}
	}
	return at
}

// track returns the number of a message in the ledger. replaced is the number of an update that has waited, and that
// the message replaces; 0 if there is none.
func (l *listener) track(ev event.Event, m *event.Message) (number, replaced uint64) {
	sink := l.pipeline.Name
	if ev.Object != nil {
		if u := l.waits.take(ev.Object.UID); u != nil && ev.Type == event.Updated {
			return u.number, 0
		} else if u != nil {
			l.counters.Suppressed.WithLabelValues(reasonDebounce).Inc()
			l.counters.Filtered.Inc()
			replaced = u.number
		}
	}
	if m.Delivery != "" || ev.SyncedInfo != nil && ev.SyncedInfo.Resync {
		return l.ledger.TrackAgain(sink), replaced
	}
	return l.ledger.Track(sink), replaced
}

// leftUnchanged reports whether an event is a leave without a known change to the object. The object leaves because
// `watch` or the filter was changed.
func leftUnchanged(ev event.Event) bool {
	return ev.LeftAt != "" && ev.LeftAt == ev.Object.ResourceVersion
}

// stateVersion returns the resourceVersion of the state that an event leads to.
func stateVersion(ev event.Event) string {
	if ev.LeftAt != "" {
		return ev.LeftAt
	}
	return ev.Object.ResourceVersion
}

// positionOf returns the position that the source has reached when an event is settled. For a change that the watch
// reported, this is the resourceVersion of the change. For all other events, which come from lists or are re-sent, it
// is the last position that the informer reached. While updates wait, it is the position before the oldest of them.
func (l *listener) positionOf(ev event.Event) string {
	oldest := l.waits.oldest()
	switch {
	case ev.InitialList && ev.Delivery == "":
		return "" // a sink that has only a part of its initial list is sent the list again
	case oldest != nil && !mutant.On("debounce-settled"):
		return oldest.position
	case l.inList || ev.Delivery != "" || ev.Type.IsControl() || ev.Type == event.Restated ||
		ev.Object.FinalStateUnknown || leftUnchanged(ev):
		return l.position
	default:
		return stateVersion(ev)
	}
}

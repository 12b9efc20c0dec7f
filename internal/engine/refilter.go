package engine

import (
	"slices"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/types"
)

// refilter is the state of a listener after the filter of its sink was changed, until the sink was sent the difference.
// The difference is sent when the informer has passed the listener's floor, which is the position up to which the sink
// has settled all events. The states in the difference are then not older than the states that the sink was sent
// before. Changes up to the floor are not sent, because the sink was already sent the events that its earlier filters
// made of them.
type refilter struct {
	// earlier contains the sink's previous filters. The sink may have been sent any object that passes at least one of
	// them. If knows is true, it was sent every object that passes all of them.
	earlier []*filter.ResourceFilter
	knows   bool
	// former contains filters before these. The sink was sent the difference, but perhaps not all that has passed them.
	former  []*filter.ResourceFilter
	change  string // name of the filter change, for event ids
	objects func() []*object.Object
	sent    map[types.UID]bool // objects for which a change was already sent
	running bool               // the filter has changed while the listener was running, so no synced event follows
}

// setRefilter sets the refilter of a new listener, or what is left of it if the sink has settled the difference.
func (l *listener) setRefilter(earlier, former []*filter.ResourceFilter, known tracker.Knowledge) {
	if len(earlier) == 0 {
		return
	}
	r := &refilter{
		earlier: earlier, former: former, knows: known.Knows(), change: known.Change,
		objects: l.informer.Objects, sent: map[types.UID]bool{},
	}
	if known.Settled {
		l.former = r
	} else {
		l.refilter = r
	}
}

func (r *refilter) mayKnow(o *object.Object) bool {
	return o != nil && slices.ContainsFunc(r.earlier, func(f *filter.ResourceFilter) bool { return f.Belongs(o) })
}

// mayHave reports whether an earlier process may have sent a state that this process has not seen before.
func (r *refilter) mayHave(o *object.Object) bool {
	return r.mayKnow(o) || slices.ContainsFunc(r.former, func(f *filter.ResourceFilter) bool { return f.Belongs(o) })
}

func (r *refilter) isKnown(o *object.Object) bool {
	return r.knows && o != nil &&
		!slices.ContainsFunc(r.earlier, func(f *filter.ResourceFilter) bool { return !f.Belongs(o) })
}

// refilterRemoval sends the event for an object that is deleted, or leaves the watched scope, before the difference is
// sent. A previous process may have sent a part of the difference. Therefore the sink may also know objects that pass
// only its current filter.
func (l *listener) refilterRemoval(last, now *object.Object) {
	if !l.refilter.sent[last.UID] && l.refilter.mayKnow(last) || l.filter.Belongs(last) {
		l.leave(l.deletion(last, now))
	}
}

// refilterChange sends a change that precedes the difference: a change in a list, or the first change past the floor.
// old is nil if the object was added.
func (l *listener) refilterChange(old, now *object.Object) {
	r := l.refilter
	if l.hasSettledUpTo(now.ResourceVersion) {
		return // the sink was already sent the event that its earlier filters made of this change
	}
	before, sure := old != nil && (r.mayKnow(old) || l.filter.Belongs(old)), r.isKnown(old)
	if r.sent[now.UID] {
		before = old != nil && l.filter.Belongs(old)
		sure = before
	}
	r.sent[now.UID] = true
	l.difference(old, now, before, sure)
}

// difference sends the event that an object requires under the current filter: an added or updated event if the object
// passes, or a leave if it does not pass. It sends nothing if the sink is up to date. mayKnow reports whether the sink
// may know the object, and isKnown whether the sink certainly knows it. If old equals now, the object has not changed.
func (l *listener) difference(old, now *object.Object, mayKnow, isKnown bool) {
	switch passes := l.filter.Belongs(now); {
	case passes && isKnown && old != now:
		l.send(event.Event{Type: event.Updated, Object: now, Old: old})
	case passes && !isKnown:
		initial := old == now && !l.refilter.running
		l.send(event.Event{Type: event.Added, Object: now, InitialList: initial, Change: l.refilter.change})
	case !passes && mayKnow && !mutant.On("no-leave-on-change"):
		l.leave(event.Event{Type: event.Deleted, Object: old, LeftAt: now.ResourceVersion, Change: l.refilter.change})
	case !passes:
		l.endIfFound(l.refilter, now)
	}
}

// endIfFound sends a leave for a state that the sink should not have, but that the previous process may have sent
// before the filter was changed. Only the destination shows whether it did.
func (l *listener) endIfFound(former *refilter, o *object.Object) {
	if former != nil && former.mayHave(o) {
		l.leave(event.Event{
			Type: event.Deleted, Object: o, LeftAt: o.ResourceVersion, Change: former.change, IfFound: true,
		})
	}
}

// leave sends the event that ends an object for the sink. It sends the event even if the current filter suppresses
// deletions.
func (l *listener) leave(ev event.Event) {
	l.sent = true
	l.push(ev)
}

// tryRefilter sends the difference if the informer has reached the floor.
func (l *listener) tryRefilter() {
	r := l.refilter
	if r == nil || l.IsBehind() {
		return
	}
	l.floor, l.inList = "", true
	objects := r.objects()
	for _, o := range objects {
		if l.ctx.Err() != nil {
			return // the difference is sent from the beginning after a restart
		}
		if !r.sent[o.UID] {
			l.pass(func() { l.difference(o, o, r.mayKnow(o), r.isKnown(o)) })
		}
	}
	l.refilter, l.former = nil, r
	l.synced(l.position, len(objects))
	l.inList = false
}

// OnCaughtUp implements informer.Resumer.
func (l *listener) OnCaughtUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.former != nil {
		l.former = nil
		l.ledger.EndRefilter(l.pipeline.Name)
	}
}

// past reports whether a position is after a floor. A position that equals the floor is not.
func past(floor, position string) bool { return position != floor && tracker.Past(floor, position) }

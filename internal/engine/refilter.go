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

// refilter is the state of a listener whose sink has another filter than before, until the sink was sent the
// difference. The difference is sent when the informer is past what the sink has settled (the listener's floor), so
// that its states are not older than those that the sink was sent. Until then changes are not sent: the sink was sent
// what its earlier filters made of them.
type refilter struct {
	// earlier are the filters by which the sink may know an object. If it knows the source (knows), it certainly knows an
	// object that passes all of them.
	earlier []*filter.ResourceFilter
	knows   bool
	change  string // the name of the change, for ids
	objects func() []*object.Object
	sent    map[types.UID]bool // objects whose changes were sent already
}

func (r *refilter) mayKnow(o *object.Object) bool {
	return o != nil && slices.ContainsFunc(r.earlier, func(f *filter.ResourceFilter) bool { return f.Belongs(o) })
}

func (r *refilter) isKnown(o *object.Object) bool {
	return r.knows && o != nil &&
		!slices.ContainsFunc(r.earlier, func(f *filter.ResourceFilter) bool { return !f.Belongs(o) })
}

// refilterRemoval sends the deletion of an object, or that it left what is watched, before the difference. A process
// before may have sent a part of the difference, so that the sink may also know what passes its present filter.
func (l *listener) refilterRemoval(last, now *object.Object) {
	if !l.refilter.sent[last.UID] && l.refilter.mayKnow(last) || l.filter.Belongs(last) {
		l.leave(l.deletion(last, now))
	}
}

// refilterChange sends a change that comes before the difference: one of a list, or the first one past the floor. old
// is nil for an addition.
func (l *listener) refilterChange(old, now *object.Object) {
	r := l.refilter
	if l.floor != "" && !past(l.floor, now.ResourceVersion) {
		return // the sink was sent what its earlier filters made of it
	}
	before, sure := old != nil && (r.mayKnow(old) || l.filter.Belongs(old)), r.isKnown(old)
	if r.sent[now.UID] {
		before = old != nil && l.filter.Belongs(old)
		sure = before
	}
	r.sent[now.UID] = true
	l.difference(old, now, before, sure)
}

// difference sends what the present filter makes of an object, which the sink may know, or certainly knows, in an older
// state or in the same.
func (l *listener) difference(old, now *object.Object, mayKnow, isKnown bool) {
	switch passes := l.filter.Belongs(now); {
	case passes && isKnown && old != now:
		l.send(event.Event{Type: event.Updated, Object: now, Old: old})
	case passes && !isKnown:
		l.send(event.Event{Type: event.Added, Object: now, InitialList: old == now, Change: l.refilter.change})
	case !passes && mayKnow && !mutant.On("no-leave-on-change"):
		l.leave(event.Event{Type: event.Deleted, Object: old, LeftAt: now.ResourceVersion, Change: l.refilter.change})
	}
}

// leave sends the event that ends an object for the sink, even if its present filter suppresses deletions.
func (l *listener) leave(ev event.Event) {
	l.sent = true
	l.push(ev)
}

// tryRefilter sends the difference if the informer is past the floor.
func (l *listener) tryRefilter() {
	r := l.refilter
	if r == nil || !tracker.Past(l.floor, l.position) {
		return
	}
	l.floor, l.inList = "", true
	objects := r.objects()
	for _, o := range objects {
		if l.ctx.Err() != nil {
			return // a restart begins again with the difference
		}
		if !r.sent[o.UID] {
			l.pass(func() { l.difference(o, o, r.mayKnow(o), r.isKnown(o)) })
		}
	}
	l.refilter = nil
	l.synced(l.position, len(objects))
	l.inList = false
}

// past reports whether a position is beyond a floor, and not at it.
func past(floor, position string) bool { return position != floor && tracker.Past(floor, position) }

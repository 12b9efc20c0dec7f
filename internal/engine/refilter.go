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

// refilter is what the listener of a sink whose filter changed has to know until the sink was sent the difference. The
// difference is sent when the informer is past what the sink has settled (the listener's floor), so that it is made of states that
// are not older than what the sink was sent. Until then changes are not sent: the sink was sent what its earlier filters
// made of them.
type refilter struct {
	// earlier are the filters by which the sink may know an object. It knows one for sure that passes all of them, if it knows the
	// source (knows).
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
	return r.knows && o != nil && !slices.ContainsFunc(r.earlier, func(f *filter.ResourceFilter) bool { return !f.Belongs(o) })
}

// refilterChange sends a change that comes before the difference: one of a list, or the first one past the floor. Old is nil for
// an addition, and now for a deletion or if the object left what is watched. An earlier process may have sent a part of the
// difference, so that the sink may know what passes its present filter, too.
func (l *listener) refilterChange(old, now *object.Object) {
	r := l.refilter
	if now == nil {
		if !r.sent[old.UID] && r.mayKnow(old) || l.filter.Belongs(old) {
			l.leave(sender{l}.deletion(old))
		}
		return
	}
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

// difference sends what is to be sent of an object that has a state, and that the sink may know, or knows for sure, in an older one or
// in the same.
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

// leave sends what ends an object for the sink, whatever its present filter says of deletions.
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

// past reports whether a position is behind a floor, not at it.
func past(floor, position string) bool { return position != floor && tracker.Past(floor, position) }

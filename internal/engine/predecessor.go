package engine

import (
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// predecessor is what a listener knows of the previous process: which events the sink has, or may have, from it.
type predecessor struct {
	// floor is the resourceVersion up to which the sink had settled all events. Changes up to the floor are not sent
	// again. It is empty once the informer has passed it.
	floor string
	// listed is the resourceVersion of the last list that the informer passed on after a gap.
	listed string
	// ended is the last object that was sent as deleted because a list no longer contains it. If the list contains another
	// object of this name, it is sent too, even if it is not newer than the floor: the deletion may have been repeated.
	ended *object.Object
	// former is the refilter after its difference was sent. It is kept until the informer has delivered all changes
	// that the previous process may have sent. If the process is killed before that, the next one still knows it.
	former *refilter
}

// hasSettled reports whether the sink had settled an event. inList reports whether the event is from a list. A deletion
// that the watch did not report has no resourceVersion of its own, so the resourceVersion of the list is compared. If
// the list is newer than the floor, the deletion is sent, perhaps again, with the same id.
func (p *predecessor) hasSettled(ev event.Event, inList bool) bool {
	ended := p.ended
	p.ended = nil
	if p.floor == "" || ev.Type.IsControl() || ev.Type == event.Restated || ev.InitialList || leftUnchanged(ev) {
		return false
	}
	if ev.Object.FinalStateUnknown {
		if inList && p.hasSettledUpTo(p.listed) {
			return true
		}
		p.ended = ev.Object
		return false
	}
	replaces := ended != nil && ended.Key() == ev.Object.Key()
	return !replaces && p.hasSettledUpTo(stateVersion(ev))
}

// hasSettledUpTo reports whether the sink had settled all events up to a resourceVersion.
func (p *predecessor) hasSettledUpTo(resourceVersion string) bool {
	return p.floor != "" && !past(p.floor, resourceVersion)
}

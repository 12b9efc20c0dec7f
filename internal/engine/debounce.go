package engine

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// reasonDebounce is the reason for which an update is suppressed that a later one replaces while it waits.
const reasonDebounce = "debounce"

// waitingUpdate is an update of an object that waits, because the filter has a debounce. The ledger has an open event
// for it, so that a restart brings its changes again.
type waitingUpdate struct {
	old, now *object.Object // the state before the first change that waits, and the latest state
	due      time.Time
	number   uint64 // in the ledger
	position string // the listener's position before the first change: see listener.positionOf
	gone     bool   // it was sent, or replaced by another event
}

// waitingUpdates contains the waiting updates of a listener. The zero value is empty.
type waitingUpdates struct {
	byUID map[types.UID]*waitingUpdate
	all   []*waitingUpdate // in the order of their positions; those at the front are not gone
}

// add adds an update of an object that has none.
func (w *waitingUpdates) add(u *waitingUpdate) {
	if w.byUID == nil {
		w.byUID = map[types.UID]*waitingUpdate{}
	}
	w.byUID[u.now.UID] = u
	w.all = append(w.all, u)
}

// take removes the update of an object. It returns nil if there is none.
func (w *waitingUpdates) take(uid types.UID) *waitingUpdate {
	u := w.byUID[uid]
	if u == nil {
		return nil
	}
	u.gone = true
	delete(w.byUID, uid)
	for len(w.all) > 0 && w.all[0].gone {
		w.all = w.all[1:]
	}
	return u
}

// oldest returns the update with the lowest position, or nil if there is none.
func (w *waitingUpdates) oldest() *waitingUpdate {
	if len(w.all) == 0 {
		return nil
	}
	return w.all[0]
}

// forgetPositions is called when resourceVersions have gone back, so that earlier positions mean nothing.
func (w *waitingUpdates) forgetPositions() {
	for _, u := range w.all {
		u.position = ""
	}
}

// due returns the updates that are due at a time, in the order of their positions.
func (w *waitingUpdates) due(now time.Time, all bool) (due []*waitingUpdate) {
	for _, u := range w.all {
		if !u.gone && (all || !now.Before(u.due)) {
			due = append(due, u)
		}
	}
	return due
}

// debounce makes an update wait if the filter demands it. It reports whether the update waits or has replaced one that
// waits.
func (l *listener) debounce(ev event.Event) bool {
	if ev.Type != event.Updated || !l.pipeline.debounces {
		return false
	}
	debounce := l.filter.Debounce(ev.Old, ev.Object)
	if debounce == 0 || l.hasSettled(ev, l.inList) {
		return false
	}
	due := time.Now().Add(debounce)
	if u := l.waits.byUID[ev.Object.UID]; u != nil {
		l.counters.Suppressed.WithLabelValues(reasonDebounce).Inc()
		if !mutant.On("debounce-lost") {
			u.now = ev.Object
		}
		if due.Before(u.due) {
			u.due = due
		}
		return true
	}
	l.sent = true
	u := &waitingUpdate{
		old: ev.Old, now: ev.Object, due: due, number: l.ledger.Track(l.pipeline.Name), position: l.position,
	}
	if mutant.On("debounce-settled") {
		l.ledger.Settle(l.pipeline.Name, u.number)
	}
	l.waits.add(u)
	return true
}

// noteRefused is called with an event that the filter suppresses. The latest state of an object is sent even if the
// change that led to it is suppressed, and also if the object then ends.
func (l *listener) noteRefused(ev event.Event) {
	u := l.waits.byUID[ev.Object.UID]
	switch {
	case u == nil:
	case ev.Type == event.Updated:
		u.now = ev.Object
	default:
		l.pushWaiting(u)
	}
}

// pushWaiting sends an update that waits.
func (l *listener) pushWaiting(u *waitingUpdate) {
	l.push(event.Event{Type: event.Updated, Object: u.now, Old: u.old})
}

// pushDue sends the updates that are due, or all that wait. What is due while the informer passes on a list is sent
// later, because the list can show that it is not current.
func (l *listener) pushDue(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.succeeds != nil {
		l.succeeds.pushDue(all)
	}
	if l.inList && !all {
		return
	}
	for _, u := range l.waits.due(time.Now(), all) {
		l.pushWaiting(u)
	}
}

// debounceTick is how often a pipeline looks for updates that are due.
const debounceTick = 100 * time.Millisecond

// followDebounce sends the updates that wait when they are due, until ctx ends. It sends them earlier if hurry is set.
func (p *pipeline) followDebounce(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { p.pushDue(p.hurry.Swap(false)) }, debounceTick)
}

// pushDue sends the updates of all listeners that are due, or all that wait.
func (p *pipeline) pushDue(all bool) {
	for _, l := range p.listening() {
		l.pushDue(all)
	}
}

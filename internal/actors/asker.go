package actors

import (
	"strconv"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/audit/actor"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

const (
	// blocked is how long the handlers may take for a change without delaying the next ones noticeably.
	blocked = time.Second
	// longAgo is when changes can have been made of which nothing is known.
	longAgo = 24 * time.Hour
)

// Asker asks for the actors of the changes of an informer, once for all sinks. It is the first of the informer's
// handlers that sends changes, so that Current is the question of the change that the other handlers are given.
type Asker struct {
	// Current is nil between two changes, and if it cannot be known who made a change. Only handlers of the informer may
	// read it.
	Current *Question

	finder   *Finder
	source   informer.Source
	status   func() informer.Status
	inList   bool
	position time.Time // when the informer has reached the last position; zero if it has reached none
	began    time.Time // when the handlers were given the change
	// Until delayedUntil, changes may have been made since delayedSince, because the watch was interrupted, or handlers
	// have blocked.
	delayedSince, delayedUntil time.Time
}

var (
	_ cache.ResourceEventHandler = (*Asker)(nil)
	_ informer.Observer          = (*Asker)(nil)
	_ informer.Leaver            = (*Asker)(nil)
	_ informer.Positioner        = (*Asker)(nil)
)

// NewAsker returns a handler of an informer.
func NewAsker(f *Finder, i *informer.Informer) *Asker {
	return &Asker{finder: f, source: i.Source(), status: i.Status, inList: i.ResumesAt() == "" || i.Relists()}
}

// OnAdd implements cache.ResourceEventHandler.
func (k *Asker) OnAdd(obj any, initial bool) {
	o := obj.(*object.Object)
	k.Current = nil
	if initial || k.inList {
		return
	}
	c := actor.Change{Kind: actor.Added}
	if k.selects() { // it may have existed before, and be selected only now
		s := k.state(o)
		if created := s.Created.Add(time.Second + skew); created.After(k.since(time.Now())) {
			c.Since = time.Unix(0, 0) // only a proof counts
		} else {
			c.Kind = s.Update(&actor.State{})
		}
	}
	k.ask(c, o)
}

// selects reports whether the watch has selectors.
func (k *Asker) selects() bool { return k.source.LabelSelector != "" || k.source.FieldSelector != "" }

// OnUpdate implements cache.ResourceEventHandler.
func (k *Asker) OnUpdate(oldObj, newObj any) {
	k.update(oldObj.(*object.Object), newObj.(*object.Object))
}

// OnLeave implements informer.Leaver.
func (k *Asker) OnLeave(last, now *object.Object) {
	if last == now { // the scope has changed, and not the object
		k.Current = nil
		return
	}
	k.update(last, now)
}

func (k *Asker) update(old, now *object.Object) {
	k.Current = nil
	if k.inList {
		return
	}
	after, before := k.state(now), actor.State{}
	if after.DependsOnBefore() {
		before = k.state(old)
	}
	k.ask(actor.Change{Kind: after.Update(&before), Before: versionOf(old)}, now)
}

// OnDelete implements cache.ResourceEventHandler.
func (k *Asker) OnDelete(obj any) {
	o := obj.(*object.Object)
	k.Current = nil
	// With a selector, a deletion can also mean that the object is not selected any more.
	if k.inList || o.FinalStateUnknown || k.selects() {
		return
	}
	s := k.state(o)
	k.ask(actor.Change{Kind: s.Deletion()}, o)
}

// ask asks for the actors of a change, whose other fields are set, unless its kind is not known.
func (k *Asker) ask(c actor.Change, o *object.Object) {
	k.began = time.Now()
	if c.Kind == 0 {
		return
	}
	c.Resource, c.Namespace, c.Name, c.UID = k.source.Resource.Resource, o.Namespace, o.Name, string(o.UID)
	c.After, c.Observed = versionOf(o), k.began
	if since := k.since(k.began); c.Since.IsZero() {
		c.Since = since
	}
	k.Current = k.finder.ask(c)
}

// since returns a time before which a change that is given to the handlers now was not made.
func (k *Asker) since(now time.Time) time.Time {
	const request = 50 * time.Millisecond // LastContact is set a moment after each position
	if contact := k.status().LastContact; k.position.IsZero() || contact.Sub(k.position) > request {
		from := k.position
		if from.IsZero() {
			from = now.Add(-longAgo)
		}
		k.delayed(from, contact) // the watch was opened again
	}
	since := now
	if now.Before(k.delayedUntil) {
		since = k.delayedSince
	}
	return since.Add(-k.finder.Wait)
}

// delayed notes that changes were not read between two times. It is assumed that reading what has piled up takes no
// longer than that.
func (k *Asker) delayed(from, to time.Time) {
	if !to.Before(k.delayedUntil) || from.Before(k.delayedSince) {
		k.delayedSince = from
	}
	until := to.Add(min(max(informer.ResumeGrace, to.Sub(from)), time.Minute))
	if until.After(k.delayedUntil) {
		k.delayedUntil = until
	}
}

// OnSynced implements informer.Observer.
func (k *Asker) OnSynced(string, int) { k.Current = nil }

// OnGap implements informer.Observer.
func (k *Asker) OnGap(string, string, string) { k.Current, k.inList = nil, true }

// OnPosition implements informer.Positioner.
func (k *Asker) OnPosition(string) {
	now := time.Now()
	if k.Current != nil && now.Sub(k.began) > blocked {
		k.delayed(k.began, now)
	}
	k.Current, k.inList, k.position = nil, false, now
}

func (k *Asker) state(o *object.Object) actor.State {
	raw, _ := o.Bytes() // without its bytes, the state is not known
	return actor.StateOf(k.source.Resource.Resource, raw)
}

// versionOf returns the resourceVersion of an object as a number, or 0 if it is none.
func versionOf(o *object.Object) uint64 {
	n, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return n
}

package engine

import (
	"strconv"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
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

// asker asks for the actors of the changes of an informer, once for all sinks. It is the first of the informer's
// handlers that sends changes, so that current is the question of the change that the other handlers are given.
type asker struct {
	actors   *actors
	source   informer.Source
	status   func() informer.Status
	current  *question // nil between two changes
	inList   bool
	position time.Time // when the informer has reached the last position; zero if it has reached none
	began    time.Time // when the handlers were given the change
	// Until delayedUntil, changes may have been made since delayedSince, because the watch was interrupted, or handlers
	// have blocked.
	delayedSince, delayedUntil time.Time
}

var (
	_ cache.ResourceEventHandler = (*asker)(nil)
	_ informer.Observer          = (*asker)(nil)
	_ informer.Leaver            = (*asker)(nil)
	_ informer.Positioner        = (*asker)(nil)
)

func newAsker(a *actors, i *informer.Informer) *asker {
	return &asker{actors: a, source: i.Source(), status: i.Status, inList: i.ResumesAt() == "" || i.Relists()}
}

func (k *asker) OnAdd(obj any, initial bool) {
	o := obj.(*object.Object)
	k.current = nil
	if initial || k.inList {
		return
	}
	c := actor.Change{Kind: actor.Added}
	s := k.state(o)
	if now := time.Now(); !s.created.Truncate(time.Second).Add(time.Second).After(k.since(now)) {
		c.Kind = actor.Updated // it existed before, and is selected only now
	}
	k.ask(c, o, s.known)
}

func (k *asker) OnUpdate(oldObj, newObj any) {
	k.update(oldObj.(*object.Object), newObj.(*object.Object))
}

// OnLeave implements informer.Leaver.
func (k *asker) OnLeave(last, now *object.Object) {
	if last == now { // the scope has changed, and not the object
		k.current = nil
		return
	}
	k.update(last, now)
}

func (k *asker) update(old, now *object.Object) {
	k.current = nil
	if k.inList {
		return
	}
	after := k.state(now)
	c := actor.Change{Kind: actor.Updated, Before: versionOf(old)}
	known := after.known
	if after.deletion != "" || after.node != "" {
		before := k.state(old)
		known = known && before.known
		switch {
		case after.deletion != "" && before.deletion == "":
			c.Kind = actor.Marked
		case after.deletion != before.deletion || after.deletion != "" && after.finalizers != before.finalizers:
			c.Kind = actor.Remarked
		case before.node == "" && after.node != "":
			c.Kind = actor.Bound
		}
	}
	k.ask(c, now, known)
}

func (k *asker) OnDelete(obj any) {
	o := obj.(*object.Object)
	k.current = nil
	// With a selector, a deletion can also mean that the object is not selected any more.
	if k.inList || o.FinalStateUnknown || k.source.LabelSelector != "" || k.source.FieldSelector != "" {
		return
	}
	c := actor.Change{Kind: actor.Deleted}
	if s := k.state(o); s.deletion != "" || !s.known {
		c.Kind = actor.Finished
	}
	k.ask(c, o, true)
}

// ask asks for the actors of a change, whose other fields are set, if the states were known.
func (k *asker) ask(c actor.Change, o *object.Object, known bool) {
	k.began = time.Now()
	if !known {
		return
	}
	c.Resource, c.Namespace, c.Name, c.UID = k.source.Resource.Resource, o.Namespace, o.Name, string(o.UID)
	c.After, c.Observed, c.Since = versionOf(o), k.began, k.since(k.began)
	k.current = k.actors.ask(c)
}

// since returns a time before which a change that is given to the handlers now was not made.
func (k *asker) since(now time.Time) time.Time {
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
	return since.Add(-k.actors.wait)
}

// delayed notes that changes were not read between two times. It is assumed that reading what has piled up takes no
// longer than that.
func (k *asker) delayed(from, to time.Time) {
	if !to.Before(k.delayedUntil) || from.Before(k.delayedSince) {
		k.delayedSince = from
	}
	until := to.Add(min(max(informer.ResumeGrace, to.Sub(from)), time.Minute))
	if until.After(k.delayedUntil) {
		k.delayedUntil = until
	}
}

// OnSynced implements informer.Observer.
func (k *asker) OnSynced(string, int) { k.current = nil }

// OnGap implements informer.Observer.
func (k *asker) OnGap(string, string, string) { k.current, k.inList = nil, true }

// OnPosition implements informer.Positioner.
func (k *asker) OnPosition(string) {
	now := time.Now()
	if k.current != nil && now.Sub(k.began) > blocked {
		k.delayed(k.began, now)
	}
	k.current, k.inList, k.position = nil, false, now
}

// state is what the kind of a change depends on.
type state struct {
	known                      bool
	deletion, finalizers, node string // deletion is deletionTimestamp and deletionGracePeriodSeconds
	created                    time.Time
}

// state returns the state of an object, which is not known if its bytes are not available.
func (k *asker) state(o *object.Object) (s state) {
	raw, err := o.Bytes()
	if err != nil || raw == nil {
		return s
	}
	s.known = true
	meta := jsonscan.Member(raw, "metadata")
	if deleted := jsonscan.Member(meta, "deletionTimestamp"); deleted != nil && string(deleted) != "null" {
		s.deletion = string(deleted) + string(jsonscan.Member(meta, "deletionGracePeriodSeconds"))
		s.finalizers = string(jsonscan.Member(meta, "finalizers"))
	}
	if r := k.source.Resource; r.Group == "" && r.Resource == "pods" {
		s.node = string(jsonscan.Text(jsonscan.Member(jsonscan.Member(raw, "spec"), "nodeName")))
	}
	s.created, _ = time.Parse(time.RFC3339, string(jsonscan.Text(jsonscan.Member(meta, "creationTimestamp"))))
	return s
}

// versionOf returns the resourceVersion of an object as a number, or 0 if it is none.
func versionOf(o *object.Object) uint64 {
	n, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return n
}

package engine

import (
	"slices"
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

// attachAsker makes an informer ask who made its changes. It returns nil if no sink is sent that.
func (e *Engine) attachAsker(i *informer.Informer) *asker {
	resource := i.Resource()
	if e.actors == nil || i.Auxiliary() || !slices.ContainsFunc(e.pipelines, func(p *pipeline) bool {
		p.filtering.Lock()
		defer p.filtering.Unlock()
		return p.Actor && !p.filter.For(resource).Never()
	}) {
		return nil
	}
	k := newAsker(e.actors, i)
	i.AddEventHandler(k)
	return k
}

func (k *asker) OnAdd(obj any, initial bool) {
	o := obj.(*object.Object)
	k.current = nil
	if initial || k.inList {
		return
	}
	c := actor.Change{Kind: actor.Added}
	if k.selects() { // it may have existed before, and be selected only now
		s := k.state(o)
		if created := s.Created.Add(time.Second + actorSkew); created.After(k.since(time.Now())) {
			c.Since = time.Unix(0, 0) // only a proof counts
		} else {
			c.Kind = s.Update(&actor.State{})
		}
	}
	k.ask(c, o)
}

// selects reports whether the watch has selectors.
func (k *asker) selects() bool { return k.source.LabelSelector != "" || k.source.FieldSelector != "" }

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
	after, before := k.state(now), actor.State{}
	if after.DependsOnBefore() {
		before = k.state(old)
	}
	k.ask(actor.Change{Kind: after.Update(&before), Before: versionOf(old)}, now)
}

func (k *asker) OnDelete(obj any) {
	o := obj.(*object.Object)
	k.current = nil
	// With a selector, a deletion can also mean that the object is not selected any more.
	if k.inList || o.FinalStateUnknown || k.selects() {
		return
	}
	s := k.state(o)
	k.ask(actor.Change{Kind: s.Deletion()}, o)
}

// ask asks for the actors of a change, whose other fields are set, unless its kind is not known.
func (k *asker) ask(c actor.Change, o *object.Object) {
	k.began = time.Now()
	if c.Kind == 0 {
		return
	}
	c.Resource, c.Namespace, c.Name, c.UID = k.source.Resource.Resource, o.Namespace, o.Name, string(o.UID)
	c.After, c.Observed = versionOf(o), k.began
	if since := k.since(k.began); c.Since.IsZero() {
		c.Since = since
	}
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

func (k *asker) state(o *object.Object) actor.State {
	raw, _ := o.Bytes() // without its bytes, the state is not known
	return actor.StateOf(k.source.Resource.Resource, raw)
}

// versionOf returns the resourceVersion of an object as a number, or 0 if it is none.
func versionOf(o *object.Object) uint64 {
	n, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return n
}

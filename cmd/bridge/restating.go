package main

import (
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// restating is a listener while it is restated to: it tells the sink what it knows, once more.
type restating struct {
	*listener
	objects  int // that were told
	withheld int // that are for the sink, and that a condition on the change kept back
}

var _ informer.Restater = (*restating)(nil)

// MayRestate implements informer.Restater. A restatement never fills the queue: it would hold up changes, or the policy would
// make a place for it at their cost. And it waits until the informer is past what the sink was told in an earlier life.
func (r *restating) MayRestate() bool {
	return r.ctx.Err() == nil && laterVersion(r.floor, r.position) == r.position && r.pipeline.hasRoom()
}

// OnRestate implements informer.Restater.
func (r *restating) OnRestate(o *object.Object) {
	if !r.filter.Belongs(o) {
		return
	}
	if r.filter.Refusal(event.Restated, nil, o) != "" {
		r.withheld++
		return
	}
	r.push(event.Event{Type: event.Restated, Object: o})
	r.objects++
	r.counters.restated.Inc()
}

// finish tells the sink that all that exists of a resource was restated. It is called as handlers are.
func (r *restating) finish(resourceVersion string, objects int, since time.Time) {
	since = since.UTC()
	r.push(event.Event{Type: event.Synced, SyncedInfo: &event.SyncedInfo{
		Resource: event.GroupResource(r.resource), ResourceVersion: resourceVersion, Objects: objects, Resync: true, Since: &since,
	}})
}

// restatedPart is the part of a queue that restatements may fill, with what else is in it: half of what it takes before a push that
// may make it spill has to wait, which would hold up the watch. It also bounds what a change waits behind.
const restatedPart = 8

// hasRoom reports whether the queue takes a restatement.
func (p *pipeline) hasRoom() bool {
	s := p.queue.Stats()
	return s.Items == 0 || restatedPart*s.Items < p.bounds.events && restatedPart*s.Bytes < p.bounds.bytes
}

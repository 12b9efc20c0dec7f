package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// restating is a listener while it is restated to: it tells the sink what it knows, once more.
type restating struct {
	*listener
	objects  int // that were told
	withheld int // that are for the sink, and that a condition on the change kept back
	// since is when it began, or an earlier time that was told, of a clock that went back meanwhile: of a wall clock, as readers
	// compare it.
	since time.Time
}

var _ informer.Restater = (*restating)(nil)

// MayRestate implements informer.Restater. A restatement never fills the queue: it would hold up changes, or the policy would
// make a place for it at their cost. And it waits until the informer is past what the sink was told in an earlier life.
func (r *restating) MayRestate() bool {
	return r.ctx.Err() == nil && r.refilter == nil && tracker.Past(r.floor, r.position) && r.pipeline.hasRoom()
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
	if at := r.push(event.Event{Type: event.Restated, Object: o}); !at.IsZero() {
		r.told(at)
	}
}

// told notes that an object was told, at the time that its event says.
func (r *restating) told(at time.Time) {
	if at = at.Round(0); at.Before(r.since) {
		r.since = at
	}
	r.objects++
	r.counters.Restated.Inc()
}

// finish tells the sink that all that exists of a resource was restated. It is called as handlers are.
func (r *restating) finish(resourceVersion string, objects int, since time.Time) {
	since = since.UTC()
	r.push(event.Event{Type: event.Synced, SyncedInfo: &event.SyncedInfo{
		Resource: event.GroupResource(r.resource), ResourceVersion: resourceVersion, Objects: objects, Resync: true, Since: &since,
	}})
}

// restatedPart is the part of a queue that restatements may fill, with what else is in it. It bounds what a change waits behind.
const restatedPart = 8

// hasRoom reports whether the queue takes a restatement.
func (p *pipeline) hasRoom() bool {
	s := p.queue.Stats()
	return s.Items == 0 || restatedPart*s.Items < p.bounds.Events && restatedPart*s.Bytes < p.bounds.Bytes
}

// deliveredPause is how long delivered waits before it looks again.
const deliveredPause = 5 * time.Millisecond

// losses are events that did not reach the destination as they were pushed, or not in their turn, since the process began.
type losses struct {
	dropped, merged int64 // by the queue, whatever their resource
	refused         int64 // of one resource: by the destination, with nothing but a gap event in the stream; or never encoded
}

func (p *pipeline) lossesOf(c *metrics.Resource) losses {
	s := p.queue.Stats()
	return losses{dropped: s.Dropped, merged: s.Merged, refused: c.NotSent.Load()}
}

// delivered returns when everything that is in the queue now was delivered. The error says what was lost since before, or is the
// context's. While nothing is dropped or merged a queue keeps its order, so that the number of acknowledgements tells.
func (p *pipeline) delivered(ctx context.Context, c *metrics.Resource, before losses) error {
	fence := p.queue.Stats()
	for {
		s := p.queue.Stats() // before the losses: they are counted before the acknowledgement
		now := p.lossesOf(c)
		switch {
		case now.refused > before.refused:
			return fmt.Errorf("its end is not marked: %d of its events were refused meanwhile, gap events say which", now.refused-before.refused)
		case now.dropped > before.dropped:
			return fmt.Errorf("its end is not marked: the queue gave up %d events meanwhile", now.dropped-before.dropped)
		case now.merged > before.merged:
			return fmt.Errorf("its end is not marked: the full queue merged %d events meanwhile", now.merged-before.merged)
		case s.Items == 0 || s.Acked-fence.Acked >= int64(fence.Items):
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(deliveredPause):
		}
	}
}

package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// restating re-sends to a sink the objects of one resource that its informers know, with one listener after the other.
type restating struct {
	*listener
	// initial: the objects are sent as an initial list, for a new destination.
	initial    bool
	known      int // objects that the informers know
	objects    int // objects that were re-sent as they are
	suppressed int // objects that are for the sink, and that a condition on the change suppressed
	// since is the wall-clock time at which the resync began. It is moved back to the time of an event whose time is
	// earlier, because the clock was stepped: consumers compare the two.
	since time.Time
}

var _ informer.Restater = (*restating)(nil)

// MayRestate implements informer.Restater. Re-sent objects never fill the queue, which would delay changes, or drop
// them. They wait until the informer is past what the sink was sent before a restart.
func (r *restating) MayRestate() bool {
	return r.ctx.Err() == nil && r.refilter == nil && tracker.Past(r.floor, r.position) && r.pipeline.hasRoom()
}

// OnRestate implements informer.Restater.
func (r *restating) OnRestate(o *object.Object) {
	r.known++
	switch {
	case !r.filter.Belongs(o):
	case r.initial:
		r.send(event.Event{Type: event.Added, Object: o, InitialList: true, Again: true})
	case r.filter.Refusal(event.Restated, nil, o) != "":
		r.suppressed++
	default:
		if at := r.push(event.Event{Type: event.Restated, Object: o}); !at.IsZero() {
			r.restated(at)
		}
	}
}

// restated counts an object that was re-sent with an event of a time.
func (r *restating) restated(at time.Time) {
	if at = at.Round(0); at.Before(r.since) {
		r.since = at
	}
	r.objects++
	r.counters.Restated.Inc()
}

// restate re-sends what the informers of some sources know. It returns the first error, after all of them.
func (r *restating) restate(ctx context.Context, sources []source) (failed error) {
	for _, s := range sources {
		r.listener = s.listener
		if err := s.informer.Restate(ctx, r); failed == nil {
			failed = err
		}
	}
	return failed
}

// finish sends a synced event when it is the turn of the last source.
func (r *restating) finish(ctx context.Context, sources []source) error {
	last := sources[len(sources)-1]
	r.listener = last.listener
	return last.informer.Turn(ctx, r, r.synced)
}

// synced sends the event that ends what was re-sent of a resource. The informer calls it like a handler.
func (r *restating) synced(resourceVersion string) {
	info := &event.SyncedInfo{
		Resource: event.GroupResource(r.resource), ResourceVersion: resourceVersion, Objects: r.known,
	}
	if !r.initial {
		since := r.since.UTC()
		info.Objects, info.Resync, info.Since = r.objects, true, &since
	}
	r.push(event.Event{Type: event.Synced, Again: r.initial, SyncedInfo: info})
}

// restatedPart is the part of a queue that re-sent objects and what else is in it may fill: an eighth. It bounds how
// much a change waits behind.
const restatedPart = 8

// hasRoom reports whether the queue takes a re-sent object.
func (p *pipeline) hasRoom() bool {
	s := p.queue.Stats()
	return s.Items == 0 || restatedPart*s.Items < p.bounds.Events && restatedPart*s.Bytes < p.bounds.Bytes
}

// deliveredPause is the interval at which delivered and awaitSettled look at the queue.
const deliveredPause = 5 * time.Millisecond

// losses are events that did not reach the destination as they were pushed, or not in their turn, since the process
// began.
type losses struct {
	dropped, merged int64 // by the queue, whatever their resource
	rejected        int64 // of one resource: with nothing but a gap event in the stream
}

func (p *pipeline) lossesOf(c *metrics.Resource) losses {
	s := p.queue.Stats()
	return losses{dropped: s.Dropped, merged: s.Merged, rejected: c.NotSent.Load()}
}

// delivered returns when everything that is in the queue now was delivered. The error says what was lost since before,
// or is the context's. As long as nothing is dropped or merged, the queue keeps its order, so that the number of
// acknowledgements is enough.
func (p *pipeline) delivered(ctx context.Context, c *metrics.Resource, before losses) error {
	fence := p.queue.Stats()
	return wait.PollUntilContextCancel(ctx, deliveredPause, true, func(context.Context) (bool, error) {
		s := p.queue.Stats() // before the losses: they are counted before the acknowledgement
		now := p.lossesOf(c)
		switch {
		case now.rejected > before.rejected:
			return false, fmt.Errorf("no synced event was sent: %d of its events were rejected, gap events say which",
				now.rejected-before.rejected)
		case now.dropped > before.dropped:
			return false, fmt.Errorf("no synced event was sent: the queue dropped %d events during the resync",
				now.dropped-before.dropped)
		case now.merged > before.merged:
			return false, fmt.Errorf("no synced event was sent: the full queue merged %d events",
				now.merged-before.merged)
		}
		return s.Items == 0 || s.Acked-fence.Acked >= int64(fence.Items), nil
	})
}

// awaitSettled returns when everything that is in the queue now was settled in one way or another, or ctx's error.
func (p *pipeline) awaitSettled(ctx context.Context) error {
	fence := p.queue.Stats()
	return wait.PollUntilContextCancel(ctx, deliveredPause, true, func(context.Context) (bool, error) {
		s := p.queue.Stats()
		gone := s.Acked + s.Dropped + s.Merged - fence.Acked - fence.Dropped - fence.Merged
		return s.Items == 0 || gone >= int64(fence.Items), nil
	})
}

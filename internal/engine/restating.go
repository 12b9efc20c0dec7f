package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// restating re-sends the known objects of one resource to a sink. It uses the listeners of the resource's informers one
// after the other.
type restating struct {
	*listener
	// initial names the delivery if the objects are sent as an initial list, for a new destination.
	initial    string
	known      int // number of objects that the informers know
	objects    int // number of objects that were sent as restated events
	suppressed int // number of objects that pass the filter but whose restated events it suppressed
	// since is the wall-clock time at which the resync began. If the clock is set back during the resync, since is moved
	// back to the earliest event time, because consumers compare the two times.
	since time.Time
}

var _ informer.Restater = (*restating)(nil)

// MayRestate implements informer.Restater. It returns false if re-sent objects could fill the queue, because a full
// queue delays or drops changes. It also returns false until the informer has reached the floor.
func (r *restating) MayRestate() bool {
	return r.ctx.Err() == nil && r.refilter == nil && !r.IsBehind() && r.pipeline.hasRoom()
}

// OnRestate implements informer.Restater.
func (r *restating) OnRestate(o *object.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.waits.byUID[o.UID]; u != nil {
		r.pushWaiting(u) // the update precedes what is restated
	}
	r.known++
	switch {
	case !r.filter.Belongs(o):
	case r.initial != "":
		r.send(event.Event{Type: event.Added, Object: o, InitialList: true, Delivery: r.initial})
	case r.filter.Refusal(event.Restated, nil, o) != "":
		r.suppressed++
	default:
		if at := r.push(event.Event{Type: event.Restated, Object: o}); !at.IsZero() {
			r.restated(at)
		}
	}
}

// restated counts a re-sent object. at is the time of its event.
func (r *restating) restated(at time.Time) {
	if at = at.Round(0); at.Before(r.since) {
		r.since = at
	}
	r.objects++
	r.counters.Restated.Inc()
}

// restate re-sends the objects that the informers of the given listeners know. It continues after an error, and returns
// the first error at the end.
func (r *restating) restate(ctx context.Context, sources []*listener) (failed error) {
	for _, l := range sources {
		r.listener = l
		if err := l.informer.Restate(ctx, r); failed == nil {
			failed = err
		}
	}
	return failed
}

// finish sends a synced event through the informer of the last source. It waits until MayRestate returns true for this
// source.
func (r *restating) finish(ctx context.Context, sources []*listener) error {
	r.listener = sources[len(sources)-1]
	return r.informer.Turn(ctx, r, r.synced)
}

// synced sends the event that ends the re-sent objects of a resource. The informer calls it while no handler is
// running.
func (r *restating) synced(resourceVersion string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := &event.SyncedInfo{
		Resource: event.GroupResource(r.source.Resource), ResourceVersion: resourceVersion, Objects: r.known,
	}
	if r.initial == "" {
		since := r.since.UTC()
		info.Objects, info.Resync, info.Since = r.objects, true, &since
	}
	r.push(event.Event{Type: event.Synced, Delivery: r.initial, SyncedInfo: info})
}

// restatedPart limits re-sent objects: they are pushed only while the queue is less than one eighth full. This limits
// how long a change has to wait behind them.
const restatedPart = 8

// hasRoom reports whether a re-sent object may be pushed.
func (p *pipeline) hasRoom() bool {
	s := p.Queue.Stats()
	return s.Items == 0 || restatedPart*s.Items < p.Buffer.Events && restatedPart*s.Bytes < p.Buffer.Bytes
}

// lossCheck returns a function that returns an error if, since lossCheck was called, events did not reach the
// destination in the form and order in which they were pushed. Drops and merges are counted for all resources of the
// queue, and rejections for each resource.
func (p *pipeline) lossCheck(resource *metrics.Resource) func() error {
	before, rejected := p.Queue.Stats(), resource.NotSent.Load()
	return func() error {
		const none = "no synced event was sent: "
		s := p.Queue.Stats()
		switch n := resource.NotSent.Load() - rejected; {
		case n > 0:
			return fmt.Errorf(none+"%d events of the resource were rejected; see the gap events", n)
		case s.Dropped > before.Dropped:
			return fmt.Errorf(none+"the queue dropped %d events during the resync", s.Dropped-before.Dropped)
		case s.Merged > before.Merged:
			return fmt.Errorf(none+"the full queue merged %d events", s.Merged-before.Merged)
		}
		return nil
	}
}

// settledPause is the interval at which awaitSettled checks the queue.
const settledPause = 5 * time.Millisecond

// awaitSettled waits until all messages that are in the queue now are settled in any way. It returns an error if check
// does, or if ctx ends first. Without drops and merges the queue keeps its order, so it is sufficient to count.
func (p *pipeline) awaitSettled(ctx context.Context, check func() error) error {
	fence := p.Queue.Stats()
	return wait.PollUntilContextCancel(ctx, settledPause, true, func(context.Context) (bool, error) {
		s := p.Queue.Stats() // read before the check, because losses are counted before their acknowledgement
		gone := s.Acked + s.Dropped + s.Merged - fence.Acked - fence.Dropped - fence.Merged
		return s.Items == 0 || gone >= int64(fence.Items), check()
	})
}

package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

const (
	// parkAfter is how long a part of the destination may be unavailable before its events are parked, if that is
	// likely to pass: a partition chooses a leader within a second or two.
	parkAfter = 2 * time.Second
	// batchesAtOnce is how many batches of a queue of parked events are delivered before the sink's own queue has its
	// turn.
	batchesAtOnce = 4
)

// parking is the state of the parts of the destination that take no events.
type parking struct {
	failing map[string]time.Time // since when a part has failed, without parked events
	mu      sync.Mutex           // guards retries against Unavailable
	retries map[string]*retry    // of parts with parked events
}

// retry is when the parked events of a part are tried again.
type retry struct {
	at    time.Time // zero: at once
	wait  *backoff.ExponentialBackOff
	cause error // why the part takes no events; nil: it was not tried yet
}

// UnavailablePart is a part of the destination that has parked events.
type UnavailablePart struct {
	parked.Queue
	Cause error // why it takes no events; nil: they are being delivered, or were not tried yet
}

// Unavailable returns the parts of the destination that have parked events, the longest-waiting first. It may be called
// at any time.
func (d *Drain) Unavailable() (parts []UnavailablePart) {
	if d.Parked == nil {
		return nil
	}
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	for _, q := range d.Parked.Queues() {
		part := UnavailablePart{Queue: q}
		if r := d.parking.retries[q.Destination]; r != nil {
			part.Cause = r.cause
		}
		parts = append(parts, part)
	}
	return parts
}

// destination returns the part of the destination that takes m; empty if nothing can be parked.
func (d *Drain) destination(m *event.Message) string {
	router, ok := d.Sink.(Router)
	if !ok || d.Parked == nil {
		return ""
	}
	return router.Part(m)
}

// unavailablePart returns the part of the destination that takes m if err says that this part takes no events. If it is
// empty, err is a failure of the whole destination.
func (d *Drain) unavailablePart(m *event.Message, err error) string {
	e, ok := errors.AsType[*UnavailableError](err)
	if !ok || d.Parked == nil || e.Destination == "" || !covers(e.Destination, d.destination(m)) {
		return ""
	}
	return e.Destination
}

// covers reports whether a part is the given one, or a larger one that it belongs to.
func covers(larger, part string) bool {
	return part == larger || strings.HasPrefix(part, larger) && part[len(larger)] == '/'
}

// parkedPart returns the part whose parked events m must not overtake; empty if there is none. A control event must not
// overtake any event of its resource.
func (d *Drain) parkedPart(m *event.Message) string {
	if d.Parked == nil || d.Parked.Empty() {
		return ""
	}
	part := d.destination(m)
	if part == "" {
		return ""
	}
	inside := "" // a queue of the larger part has all that is newer
	for _, q := range d.Parked.Queues() {
		switch {
		case covers(q.Destination, part) && (inside == "" || len(q.Destination) < len(inside)):
			inside = q.Destination
		case inside == "" && covers(part, q.Destination): // it is not known yet to which of the smaller parts m belongs
			inside = part
		case inside == "" && m.Type.IsControl() && slices.Contains(q.Resources, m.Resource.GroupResource().String()):
			inside = part
		}
	}
	return inside
}

// markAvailable forgets that the part of the destination that took m has failed.
func (d *Drain) markAvailable(m *event.Message) {
	if len(d.parking.failing) > 0 {
		part := d.destination(m)
		maps.DeleteFunc(d.parking.failing, func(failing string, _ time.Time) bool { return covers(failing, part) })
	}
}

// markUnavailable marks for parking what can't be sent because parts of the destination take no events. It reports
// whether there is any.
func (d *Drain) markUnavailable(parts map[string]error) (marked bool) {
	for part, cause := range parts {
		if !IsRejected(cause) && !d.lasts(part) {
			continue
		}
		d.beginParking(part, cause)
		for i := range d.items {
			if it := &d.items[i]; !it.done && covers(part, d.destination(it.orig)) {
				it.park, marked = part, true
			}
		}
	}
	return marked
}

// lasts reports whether a part has been failing for parkAfter. The first call notes the time.
func (d *Drain) lasts(part string) bool {
	since, failing := d.parking.failing[part]
	if !failing {
		d.parking.failing[part] = time.Now()
	}
	return failing && time.Since(since) >= parkAfter
}

func (d *Drain) beginParking(part string, cause error) {
	delete(d.parking.failing, part)
	if d.Parked.Holds(part) {
		return
	}
	d.Logger.Warn(
		"destination takes no events, they are parked on disk; other destinations go on",
		"destination",
		part,
		"err",
		cause,
	)
	r := d.retryOf(part)
	r.cause, r.at = cause, time.Now().Add(r.wait.NextBackOff())
}

// retryOf returns the retry of a part, and creates it if there is none.
func (d *Drain) retryOf(part string) *retry {
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	r := d.parking.retries[part]
	if r == nil {
		r = &retry{wait: doubling(MaxBackoff)}
		d.parking.retries[part] = r
	}
	return r
}

// park parks the items that are marked for it. If there is no room, it returns an error and the items stay marked.
func (d *Drain) park() error {
	var all []parked.Parking
	var marked []*item
	for i := range d.items {
		if it := &d.items[i]; it.park != "" && !it.done {
			all, marked = append(all, parked.Parking{Destination: it.park, Message: it.orig}), append(marked, it)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if err := d.Parked.Park(all); err != nil {
		return fmt.Errorf("destination %s takes no events: %w", all[0].Destination, err)
	}
	for _, it := range marked {
		it.done = true
	}
	return nil
}

// take takes a batch from the queue. It returns without messages when parked events are to be tried again.
func (d *Drain) take(ctx context.Context) ([]*event.Message, error) {
	at, waiting := d.nextRetry()
	if !waiting || d.Queue.Stats().Items > 0 {
		return d.Queue.Take(ctx, d.taken, d.MaxBatch, maxBatchBytes)
	}
	if !time.Now().Before(at) && ctx.Err() == nil {
		return nil, nil
	}
	short, cancel := context.WithDeadline(ctx, at)
	defer cancel()
	batch, err := d.Queue.Take(short, d.taken, d.MaxBatch, maxBatchBytes)
	if err != nil && !errors.Is(err, fifo.ErrClosed) && ctx.Err() == nil && short.Err() != nil {
		return batch, nil
	}
	return batch, err
}

// nextRetry returns when the next parked events are to be tried again.
func (d *Drain) nextRetry() (at time.Time, waiting bool) {
	if d.Parked == nil || d.Parked.Empty() {
		return at, false
	}
	queues := d.Parked.Queues()
	for _, q := range queues {
		if r := d.retryOf(q.Destination); !isBehind(q, queues) && (!waiting || r.at.Before(at)) {
			at, waiting = r.at, true
		}
	}
	return at, waiting
}

// isBehind reports whether a smaller part has older events.
func isBehind(q parked.Queue, queues []parked.Queue) bool {
	return slices.ContainsFunc(queues, func(other parked.Queue) bool {
		return other.Destination != q.Destination && covers(q.Destination, other.Destination)
	})
}

// retryParked delivers parked events that are due, as long as their destination takes them.
func (d *Drain) retryParked(ctx context.Context) {
	if d.Parked == nil || d.Parked.Empty() {
		return
	}
	queues := d.Parked.Queues()
	for _, q := range queues {
		r := d.retryOf(q.Destination)
		for range batchesAtOnce {
			if ctx.Err() != nil || time.Now().Before(r.at) || isBehind(q, queues) || !d.Parked.Holds(q.Destination) {
				break
			}
			d.deliverParked(ctx, q.Destination, r)
		}
	}
}

// deliverParked makes one attempt to deliver the oldest parked events of a part.
func (d *Drain) deliverParked(ctx context.Context, part string, r *retry) {
	head, err := d.Parked.Head(part, d.MaxBatch, maxBatchBytes)
	if err == nil && len(head) > 0 {
		if head = d.ready(part, head); len(head) == 0 {
			r.at = time.Now().Add(RetryInterval)
			return
		}
		err = d.sendParked(ctx, part, head)
	}
	if ctx.Err() != nil {
		return
	}
	_, isPart := errors.AsType[*UnavailableError](err)
	switch {
	case err == nil:
		r.at = time.Time{}
		r.wait.Reset()
	case isPart || IsRejected(err): // it will not pass soon
		r.at = time.Now().Add(r.wait.NextBackOff())
	default:
		r.at = time.Now().Add(RetryInterval)
	}
	delivered := !d.Parked.Holds(part)
	d.parking.mu.Lock()
	r.cause = err
	if delivered {
		delete(d.parking.retries, part)
	}
	d.parking.mu.Unlock()
	if delivered {
		d.Logger.Info("destination takes events again, everything that was parked is delivered", "destination", part)
	}
}

// ready returns which of the oldest events of a part may be sent now: the events before the first control event, or the
// control event alone if no other part has older events of its resource.
func (d *Drain) ready(part string, head []parked.Entry) []parked.Entry {
	for i, e := range head {
		if !e.Message.Type.IsControl() {
			continue
		}
		if i > 0 {
			return head[:i]
		}
		resource := e.Message.Resource.GroupResource().String()
		if slices.ContainsFunc(d.Parked.Queues(), func(q parked.Queue) bool {
			return q.Destination != part && q.First < e.Number && slices.Contains(q.Resources, resource)
		}) {
			return nil
		}
		return head[:1]
	}
	return head
}

// sendParked sends parked events and removes the delivered ones. The error says why some were not delivered.
func (d *Drain) sendParked(ctx context.Context, part string, head []parked.Entry) error {
	d.items = d.items[:0]
	for _, e := range head {
		d.items = append(d.items, item{orig: e.Message, send: e.Message})
	}
	defer func() { clear(d.items); d.items = d.items[:0] }()
	for {
		a := d.attempt(ctx)
		d.report(ctx, a)
		var done []uint64
		for i := range d.items {
			if d.items[i].done {
				done = append(done, head[i].Number)
			}
		}
		if err := d.Parked.Remove(part, done); err != nil { // they will be sent again
			return err
		}
		for _, cause := range a.parts {
			a.err = cmp.Or(a.err, cause)
		}
		switch {
		case a.err != nil, len(done) == len(head):
			return a.err
		case ctx.Err() != nil || !a.progress:
			return ErrNotAttempted
		}
	}
}

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
	// parkAfter is how long a part of the destination may fail before its events are parked, if the failure is likely to
	// be short. A partition elects a new leader within a second or two.
	parkAfter = 2 * time.Second
	// batchesAtOnce is the maximum number of batches of one parked queue that are delivered before the drain continues
	// with the sink's queue.
	batchesAtOnce = 4
)

// parking is the state of the parts of the destination that take no events.
type parking struct {
	mu    sync.Mutex       // guards parts against Unavailable
	parts map[string]*part // the parts that fail or have parked events
}

// part is a part of the destination that fails or has parked events.
type part struct {
	since time.Time // time of the first failure
	at    time.Time // when the parked events are tried again; zero means immediately
	wait  *backoff.ExponentialBackOff
	cause error // why the part takes no events; nil before the first attempt
	// delivered contains the numbers of parked events that were delivered and could not be removed from the disk yet.
	delivered []uint64
	// moved means that an earlier process has parked the events, with another configuration, and that they are for other
	// parts now. Later events of their objects are therefore for parts with other names.
	moved bool
}

// UnavailablePart is a part of the destination that has parked events.
type UnavailablePart struct {
	parked.Queue
	Cause error // why the part takes no events; nil if its events are being delivered or have not been tried yet
}

// Unavailable returns the parts of the destination that have parked events. The part that has waited longest comes
// first. Unavailable may be called at any time.
func (d *Drain) Unavailable() (parts []UnavailablePart) {
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	for _, q := range d.Parked.Queues() {
		unavailable := UnavailablePart{Queue: q}
		if p := d.parking.parts[q.Destination]; p != nil {
			unavailable.Cause = p.cause
		}
		parts = append(parts, unavailable)
	}
	return parts
}

// unavailablePart returns the part of the destination that takes m if err means that this part takes no events. It
// returns an empty string if err is a failure of the whole destination.
func (d *Drain) unavailablePart(m *event.Message, err error) string {
	e, ok := errors.AsType[*UnavailableError](err)
	if !ok || e.Destination == "" || !covers(e.Destination, d.Sink.Part(m)) {
		return ""
	}
	return e.Destination
}

// covers reports whether part is equal to larger or belongs to it.
func covers(larger, part string) bool {
	return part == larger || strings.HasPrefix(part, larger) && part[len(larger)] == '/'
}

// noteMoved finds the parts whose parked events are for other parts now.
func (d *Drain) noteMoved() {
	for _, q := range d.Parked.Queues() {
		head, err := d.Parked.Head(q.Destination, 1, 0)
		d.part(q.Destination).moved = err != nil ||
			len(head) > 0 && !Overlap(q.Destination, d.Sink.Part(head[0].Message))
	}
}

func (d *Drain) isMoved(name string) bool {
	p := d.parking.parts[name]
	return p != nil && p.moved
}

// parkedPart returns the part whose parked events m must not overtake. It returns an empty string if m may be sent. A
// control event must not overtake any event of its resource.
func (d *Drain) parkedPart(m *event.Message) string {
	if d.Parked.Empty() {
		return ""
	}
	part := d.Sink.Part(m)
	inside := "" // if the larger part has a queue too, that queue contains all newer events
	for _, q := range d.Parked.Queues() {
		switch {
		case covers(q.Destination, part) && (inside == "" || len(q.Destination) < len(inside)):
			inside = q.Destination
		case inside == "" && covers(part, q.Destination): // the smaller part that takes m is not known yet
			inside = part
		case inside == "" && (m.Type.IsControl() || d.isMoved(q.Destination)) &&
			slices.Contains(q.Resources, m.Resource.GroupResource().String()):
			inside = cmp.Or(part, q.Destination) // without parts, m follows in the queue of the older events
		}
	}
	return inside
}

// Overlap reports whether one of two parts of a destination is the other one or belongs to it.
func Overlap(a, b string) bool { return covers(a, b) || covers(b, a) }

// markAvailable records that the part that accepted m works.
func (d *Drain) markAvailable(m *event.Message) {
	if len(d.parking.parts) == 0 {
		return
	}
	took := d.Sink.Part(m)
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	maps.DeleteFunc(d.parking.parts, func(name string, _ *part) bool {
		return covers(name, took) && !d.Parked.Holds(name)
	})
}

// markUnavailable marks items for parking if their part of the destination takes no events. It reports whether it
// marked any. The time of an outage of the whole destination does not count towards parkAfter.
func (d *Drain) markUnavailable(a attempted) (marked bool) {
	if a.err != nil {
		d.forgetFailures()
	}
	for name, cause := range a.parts {
		p := d.part(name)
		if !IsRejected(cause) && time.Since(p.since) < parkAfter {
			continue
		}
		if !d.Parked.Holds(name) {
			d.Logger.Warn("destination does not accept events, parking its events on disk", "destination", name, "err", cause)
			p.cause, p.at = cause, time.Now().Add(p.wait.NextBackOff())
		}
		for i := range d.items {
			if it := &d.items[i]; !it.done && covers(name, d.Sink.Part(it.orig)) {
				it.park, marked = name, true
			}
		}
	}
	return marked
}

// forgetFailures forgets the parts that have failed and have no parked events.
func (d *Drain) forgetFailures() {
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	maps.DeleteFunc(d.parking.parts, func(name string, _ *part) bool { return !d.Parked.Holds(name) })
}

// part returns the state of a part. If there is none, it creates one with the current time as the first failure.
func (d *Drain) part(name string) *part {
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	p := d.parking.parts[name]
	if p == nil {
		p = &part{since: time.Now(), wait: doubling(MaxBackoff)}
		d.parking.parts[name] = p
	}
	return p
}

// park parks the items that are marked for parking. If there is no room, it returns an error and the items stay marked.
func (d *Drain) park() error {
	var all []parked.Parking
	for i := range d.items {
		if it := &d.items[i]; it.park != "" && !it.done {
			all = append(all, parked.Parking{Destination: it.park, Message: it.orig})
		}
	}
	if len(all) == 0 {
		return nil
	}
	if err := d.Parked.Park(all); err != nil {
		return fmt.Errorf("cannot park events for %s: %w", all[0].Destination, err)
	}
	for i := range d.items {
		d.items[i].done = d.items[i].done || d.items[i].park != ""
	}
	return nil
}

// take takes a batch from the queue. It returns without messages when parked events have to be tried again, when
// progress events may be due, and after a check of the destination. While there are no messages at all, it checks a
// working destination every checkInterval.
func (d *Drain) take(ctx context.Context) ([]*event.Message, error) {
	at, waiting := d.nextRetry()
	if d.Queue.Stats().Items > 0 {
		d.checkAt = time.Time{}
		return d.Queue.Take(ctx, d.taken, d.MaxBatch, maxBatchBytes)
	}
	if !waiting {
		if d.checkAt.IsZero() {
			d.checkAt = time.Now().Add(checkInterval)
		}
		at = d.checkAt
	}
	if !d.progressAt.IsZero() && d.progressAt.Before(at) {
		at, waiting = d.progressAt, true
	}
	short, cancel := context.WithDeadline(ctx, at)
	batch, err := d.Queue.Take(short, d.taken, d.MaxBatch, maxBatchBytes)
	late := short.Err() != nil
	cancel()
	switch {
	case err == nil || errors.Is(err, fifo.ErrClosed) || !late:
		return batch, err
	case ctx.Err() != nil: // err can be that of short, which ended at the same moment
		return batch, ctx.Err()
	case !waiting:
		d.checkAt = time.Now().Add(d.check(ctx))
	}
	return batch, nil
}

// nextRetry returns the time when the next parked events have to be tried again.
func (d *Drain) nextRetry() (at time.Time, waiting bool) {
	queues := d.Parked.Queues()
	for _, q := range queues {
		if p := d.part(q.Destination); !d.isBehind(q, queues) && (!waiting || p.at.Before(at)) {
			at, waiting = p.at, true
		}
	}
	return at, waiting
}

// isBehind reports whether events of a part that lies within q's part, such as a partition of its topic, are parked
// too. Those events are older and must be delivered first.
func (d *Drain) isBehind(q parked.Queue, queues []parked.Queue) bool {
	return slices.ContainsFunc(queues, func(other parked.Queue) bool {
		return other.Destination != q.Destination && covers(q.Destination, other.Destination) &&
			!d.isMoved(q.Destination) && !d.isMoved(other.Destination) // otherwise each event waits for those that are older
	})
}

// retryParked delivers the parked events that are due, as long as their part takes events.
func (d *Drain) retryParked(ctx context.Context) {
	queues := d.Parked.Queues()
	for _, q := range queues {
		p := d.part(q.Destination)
		for range batchesAtOnce {
			if ctx.Err() != nil || time.Now().Before(p.at) || d.isBehind(q, queues) || !d.Parked.Holds(q.Destination) {
				break
			}
			d.deliverParked(ctx, q.Destination, p)
		}
	}
}

// deliverParked makes one attempt to deliver the oldest parked events of a part.
func (d *Drain) deliverParked(ctx context.Context, name string, p *part) {
	err := d.removeDelivered(name, p)
	var head []parked.Entry
	if err == nil {
		head, err = d.Parked.Head(name, d.MaxBatch, maxBatchBytes)
	}
	if err == nil && len(head) > 0 {
		if head = d.ready(name, head); len(head) == 0 {
			p.at = time.Now().Add(RetryInterval)
			return
		}
		err = d.sendParked(ctx, name, p, head)
	}
	if ctx.Err() != nil {
		return
	}
	_, isPart := errors.AsType[*UnavailableError](err)
	switch {
	case err == nil:
		p.at = time.Time{}
		p.wait.Reset()
	case isPart || IsRejected(err): // the failure will probably last
		p.at = time.Now().Add(p.wait.NextBackOff())
	default:
		p.at = time.Now().Add(RetryInterval)
	}
	d.parking.mu.Lock()
	defer d.parking.mu.Unlock()
	if p.cause = err; !d.Parked.Holds(name) {
		delete(d.parking.parts, name)
		d.Logger.Info("destination accepts events again, all parked events are delivered", "destination", name)
	}
}

// ready returns the events at the front of head that may be sent now. These are the events before the first control
// event, or before the first that must wait for another part. If a control event comes first, ready returns it alone.
func (d *Drain) ready(part string, head []parked.Entry) []parked.Entry {
	queues := d.Parked.Queues()
	moved := slices.ContainsFunc(queues, func(q parked.Queue) bool { return d.isMoved(q.Destination) })
	for i, e := range head {
		control := e.Message.Type.IsControl()
		switch {
		case i > 0 && control, (control || moved) && d.mustWait(part, e, queues):
			return head[:i]
		case control:
			return head[:1]
		}
	}
	return head
}

// mustWait reports whether an event must wait because other parts have older events of the same resource. A control
// event must wait for all of them. Another event must wait only if one of the parts is not that of its events any more.
func (d *Drain) mustWait(part string, e parked.Entry, queues []parked.Queue) bool {
	resource := e.Message.Resource.GroupResource().String()
	all := e.Message.Type.IsControl() || d.isMoved(part)
	return slices.ContainsFunc(queues, func(q parked.Queue) bool {
		return q.Destination != part && q.First < e.Number && (all || d.isMoved(q.Destination)) &&
			slices.Contains(q.Resources, resource)
	})
}

// sendParked sends parked events and removes the delivered ones. The error explains why the others were not delivered.
func (d *Drain) sendParked(ctx context.Context, name string, p *part, head []parked.Entry) error {
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
		p.delivered = done
		if err := d.removeDelivered(name, p); err != nil {
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

// removeDelivered removes delivered events from the disk, so that they are not sent again.
func (d *Drain) removeDelivered(name string, p *part) error {
	if len(p.delivered) == 0 {
		return nil
	}
	if err := d.Parked.Remove(name, p.delivered); err != nil {
		return err
	}
	p.delivered = nil
	return nil
}

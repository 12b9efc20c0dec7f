package sinks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// attempted is the outcome of one Send.
type attempted struct {
	progress bool             // at least one message was settled or rejected
	err      error            // why messages have to be tried again, if the cause is not an unavailable part
	parts    map[string]error // errors of the parts of the destination that take no events; nil if all parts take events
}

// report updates the status of the destination after an attempt.
func (d *Drain) report(ctx context.Context, a attempted) {
	if a.err == nil {
		d.state.ok(d.Logger)
	} else if ctx.Err() == nil {
		d.state.failed(d.Logger, a.err)
	}
}

// attempt sends the messages that are not settled yet, in order, and records the result of each. While the sink is
// paused, it waits.
func (d *Drain) attempt(ctx context.Context) (a attempted) {
	if err := d.gate.enter(ctx); err != nil {
		return attempted{err: err}
	}
	defer d.gate.leave()
	if !d.leads() && (d.Fenced == nil || !d.Fenced()) {
		return attempted{err: errNotLeading}
	}
	away := d.collect(ctx)
	d.results = append(d.results[:0], make([]error, len(d.out))...)
	start := time.Now()
	if len(d.out) > 0 {
		d.Sink.Send(ctx, d.out, d.results)
	}
	sent := time.Now()

	again := false // whether at least one message must be sent again
	for k, err := range d.results {
		if mutant.On("settle-unsent") {
			err = nil
		}
		it := &d.items[d.outItem[k]]
		switch {
		case err == nil:
			d.settle(it, func(m *event.Message) { d.Hooks.settled(m, sent, sent.Sub(start)) })
			d.markAvailable(it.orig)
			a.progress = true
		case errors.Is(err, ErrStored):
			d.settle(it, d.Hooks.stored)
			a.progress = true
		case IsPermanent(err):
			d.reject(it, err)
			a.progress = true
		default:
			again = true
			if part := d.unavailablePart(it.orig, err); part != "" {
				if a.parts == nil {
					a.parts = make(map[string]error)
				}
				a.parts[part] = err
			} else if a.err == nil && !errors.Is(err, ErrNotAttempted) {
				a.err = err
			}
		}
	}
	clear(d.out)
	if a.err == nil && again && !a.progress && len(a.parts) == 0 { // the sink did not return a cause
		a.err = ErrNotAttempted
	}
	// Otherwise these messages only waited for the replacement of an earlier event of their object.
	if a.err != nil || len(a.parts) > 0 {
		d.noteRetries()
	}
	a.err = cmp.Or(a.err, away)
	return a
}

// collect fills d.out with the messages to send now. These are all messages that are not settled, up to the first
// whose replacement can't be created now. It returns the error of that replacement. If a gap event replaces a message,
// later messages of the object wait for the gap event: if the process restarted and found a later message in the
// destination, it would not send the gap event. Messages of an object also wait if their source has delivered them
// again (repeatsLeft).
func (d *Drain) collect(ctx context.Context) (away error) {
	d.out, d.outItem = d.out[:0], d.outItem[:0]
	clear(d.left)
	var held []event.Key // objects whose later messages wait
	for i := range d.items {
		it := &d.items[i]
		if it.done || it.park != "" {
			continue
		}
		if slices.Contains(held, it.orig.Key()) {
			continue
		}
		if it.orig.IfFound && !d.ReadsBack {
			d.settle(it, d.Hooks.stored)
			continue
		}
		if d.ReadsBack && d.repeatsLeft(it.orig) {
			held = append(held, it.orig.Key())
			continue
		}
		if it.send == nil {
			if err := d.replace(ctx, it); err != nil {
				return err
			}
		}
		if it.rejection != nil && !it.outcome.InStream() {
			held = append(held, it.orig.Key())
		}
		d.out, d.outItem = append(d.out, it.send), append(d.outItem, i)
	}
	return nil
}

// repeatsLeft reports whether m is not newer than an event of the same object in d.out that an earlier process has left
// on disk. Then the source of m has delivered m again. When the event from the disk is written, the sink knows that m
// must not be sent (Found.Sent).
func (d *Drain) repeatsLeft(m *event.Message) bool {
	if len(d.left) == 0 && !m.Origin.Left {
		return false
	}
	version, err := strconv.ParseUint(m.Identity.ResourceVersion, 10, 64)
	if err != nil { // a control event, which is sent alone
		return false
	}
	if left, ok := d.left[m.Key()]; ok && version <= left {
		return true
	}
	if m.Origin.Left {
		if d.left == nil {
			d.left = make(map[event.Key]uint64)
		}
		d.left[m.Key()] = version
	}
	return false
}

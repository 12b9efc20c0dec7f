package delivery

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// settlePoll is the interval at which announceLosses checks whether its gap events are settled.
const settlePoll = 50 * time.Millisecond

// noteLoss makes announceLosses send gap events because the whole spill, or parked events, are lost. The checkpoint
// notes this before what is damaged is quarantined or removed, until the gap events are settled. If the process is
// killed in between, the next one sends them, with the same ids.
func (d *Delivery) noteLoss() {
	d.losing.Lock()
	defer d.losing.Unlock()
	if err := d.options.Store.SetLost(d.options.Sink, time.Now()); err != nil {
		d.Log.Error("cannot store that events are lost; if the bridge is killed now, no gap event announces it", "err", err)
	}
	d.announce()
}

func (d *Delivery) announce() {
	select {
	case d.lost <- struct{}{}:
	default:
	}
}

// announceLosses sends gap events when events are lost, or if an earlier process has not sent them. It returns when the
// queue has ended.
func (d *Delivery) announceLosses(queueEnded <-chan struct{}) {
	if !d.options.Store.LostAt(d.options.Sink).IsZero() {
		d.announce()
	}
	for {
		select {
		case <-queueEnded:
			return
		case <-d.lost:
		}
		at := d.options.Store.LostAt(d.options.Sink)
		if at.IsZero() { // it could not be stored
			at = time.Now()
		}
		for _, gap := range d.user.Load().Lost(fifo.Loss{}, at) {
			if d.Queue.Push(context.Background(), gap) != nil { // the queue is closed
				return
			}
		}
		upTo := d.Queue.Last()
		for ended := false; !d.forgetLoss(upTo) && !ended; {
			select {
			case <-queueEnded:
				ended = true // what was not delivered was written to disk
			case <-time.After(settlePoll):
			}
		}
	}
}

// forgetLoss removes the note, unless more events were lost, if everything in the queue up to a number is settled. If
// it is not, forgetLoss returns false.
func (d *Delivery) forgetLoss(upTo uint64) bool {
	if !d.Queue.IsSettled(upTo) {
		return false
	}
	d.losing.Lock()
	defer d.losing.Unlock()
	if len(d.lost) > 0 {
		return true
	}
	if err := d.options.Store.SetLost(d.options.Sink, time.Time{}); err != nil {
		d.Log.Warn("cannot store that gap events were sent; after a restart, they are sent again", "err", err)
	}
	return true
}

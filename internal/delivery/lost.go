package delivery

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// settlePoll is the interval at which announceLosses checks whether its gap events are settled.
const settlePoll = 50 * time.Millisecond

// lossNote returns the path of a file that exists while gap events must be sent because the whole spill, or parked
// events, are lost. The file is written before what is damaged is quarantined or removed, and removed when the gap
// events are settled. If the process is killed in between, the next one sends them, with the same ids.
func (d *Delivery) lossNote() string { return filepath.Join(d.options.State, "lost-"+d.options.Sink) }

// noteLoss makes announceLosses send gap events.
func (d *Delivery) noteLoss() {
	d.losing.Lock()
	defer d.losing.Unlock()
	if err := files.WriteFile(d.lossNote(), nil); err != nil {
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
	if _, err := os.Stat(d.lossNote()); err == nil {
		d.announce()
	}
	for {
		select {
		case <-queueEnded:
			return
		case <-d.lost:
		}
		at := time.Now()
		if note, err := os.Stat(d.lossNote()); err == nil {
			at = note.ModTime()
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
	if err := os.Remove(d.lossNote()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Log.Warn("cannot remove a file; after a restart, gap events are sent again", "path", d.lossNote(), "err", err)
	}
	return true
}

package sinks

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// IsProgress reports whether a batch consists of progress events. The drain sends them in batches of their own. If the
// destination has several sequences, such as partitions, Send writes each of them to all sequences that can contain
// events of its resource.
func IsProgress(batch []*event.Message) bool {
	return len(batch) > 0 && batch[0].Type == event.Progress
}

// sendProgress sends the progress events that can be sent now. Those that the destination does not acknowledge are not
// sent again, because later ones replace them. They are not sent while the destination fails, or while another process
// may lead and send its own.
func (d *Drain) sendProgress(ctx context.Context) {
	d.progressAt = time.Time{}
	if d.Hooks.Progress == nil {
		return
	}
	events, again := d.Hooks.Progress()
	if again > 0 {
		d.progressAt = time.Now().Add(again)
	}
	if len(events) == 0 || !d.Delivering() || !d.leads() || !d.gate.tryEnter() {
		return
	}
	defer d.gate.leave()
	results := make([]error, len(events))
	d.Sink.Send(ctx, events, results)
	for i, err := range results {
		if err != nil && ctx.Err() == nil {
			d.progressLog.Do(func() {
				d.Logger.Warn("cannot send progress event", "resource", events[i].Subject(), "err", err)
			})
		}
	}
}

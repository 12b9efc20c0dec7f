package delivery

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// stalled is the maximum time without an acknowledgement during shutdown. After that time the sink's drain is stopped.
	stalled = time.Second
	// progressTick is the interval at which Finish checks for acknowledgements.
	progressTick = 20 * time.Millisecond
	// closeTimeout is the maximum time for closing a sink's connections. cutTimeout applies instead if the sink's drain
	// ended before it had delivered all events.
	closeTimeout = 5 * time.Second
	cutTimeout   = 100 * time.Millisecond
)

// Finish ends deliveries: it lets the drains deliver the queued events until the timeout, and writes the rest to disk.
// A drain whose destination does not accept events is stopped at once.
func Finish(all []*Delivery, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var group sync.WaitGroup
	for _, d := range all {
		d.Queue.Close()
		group.Go(func() { d.finishDrain(ctx) })
	}
	group.Wait()
	var failures []error
	for _, d := range all {
		d.stopSpilling()
		failures = append(failures, d.failure, <-d.written)
	}
	return errors.Join(failures...)
}

// finishDrain waits until the drain has ended. It stops the drain if ctx ends or the destination accepts no events.
func (d *Delivery) finishDrain(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	acked, since := d.Queue.Stats().Acked, time.Now()
	for d.mayDeliver() && time.Since(since) < stalled && ctx.Err() == nil {
		select {
		case <-d.drained:
			return
		case <-ticker.C:
		}
		if n := d.Queue.Stats().Acked; n != acked {
			acked, since = n, time.Now()
		}
	}
	d.stop()
	<-d.drained
}

// mayDeliver reports whether the destination accepts events, or may accept waiting ones as soon as it is connected.
func (d *Delivery) mayDeliver() bool {
	_, failed := d.Drain.Failure()
	return failed == nil && d.Drain.PausedSince().IsZero() && (d.Drain.Connected() || d.Queue.Stats().Items > 0)
}

// Close closes the connections of all sinks concurrently, and their stores of parked events. It logs how many events
// each sink leaves undelivered.
func Close(all []*Delivery) {
	var group sync.WaitGroup
	for _, d := range all {
		group.Go(func() {
			timeout := closeTimeout
			if d.Queue.Stats().Items > 0 {
				timeout = cutTimeout
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			d.close(ctx)
			onDisk, lost := d.Left()
			if onDisk+lost == 0 {
				d.Log.Info("queue is empty")
				return
			}
			d.Log.Warn("events left undelivered", "onDisk", onDisk, "notStored", lost)
		})
	}
	group.Wait()
}

func (d *Delivery) close(ctx context.Context) {
	if err := d.options.Disconnect(ctx); err != nil {
		d.Log.Warn("cannot close a connection of the sink", "err", err)
	}
	for _, part := range d.Drain.Unavailable() {
		d.Log.Warn("events stay parked until their destination accepts events",
			"destination", part.Destination, "events", part.Events)
	}
	if err := d.Drain.Parked.Close(); err != nil {
		d.Log.Error("cannot close the store of parked events", "err", err)
	}
}

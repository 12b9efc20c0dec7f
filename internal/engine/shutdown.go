package engine

import (
	"context"
	"sync"
	"time"
)

const (
	// stalled is for how long a sink may acknowledge nothing during the shutdown before its drain is ended.
	stalled = time.Second
	// progressTick is the interval at which this is checked.
	progressTick = 20 * time.Millisecond
	// closeTimeout bounds the closing of a sink's connections, cutTimeout that of a sink whose drain was ended early.
	closeTimeout = 5 * time.Second
	cutTimeout   = 100 * time.Millisecond
)

// finishDelivery lets the drains deliver what is queued. A drain is ended at the deadline, and at once if its
// destination takes nothing: what it leaves is written to disk.
func (e *Engine) finishDelivery() {
	ctx, cancel := context.WithTimeout(context.Background(), e.shutdownTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, p := range e.pipelines {
		p.queue.Close()
		group.Go(func() { p.finishDelivery(ctx) })
	}
	group.Wait()
}

// finishDelivery returns when the drain has ended.
func (p *pipeline) finishDelivery(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	acked, since := p.queue.Stats().Acked, time.Now()
	for p.drain.Delivering() && time.Since(since) < stalled && ctx.Err() == nil {
		select {
		case <-p.drained:
			return
		case <-ticker.C:
		}
		if n := p.queue.Stats().Acked; n != acked {
			acked, since = n, time.Now()
		}
	}
	p.stop()
	<-p.drained
	p.cut = p.queue.Stats().Items > 0
}

// closeSinks closes the connections of all sinks at the same time, and logs what each of them leaves.
func (e *Engine) closeSinks() {
	var group sync.WaitGroup
	for _, p := range e.pipelines {
		group.Go(func() {
			timeout := closeTimeout
			if p.cut {
				timeout = cutTimeout
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			p.close(ctx)
			onDisk, lost := p.left()
			if onDisk+lost == 0 {
				p.log.Info("everything was delivered")
				return
			}
			p.log.Warn("events left undelivered", "onDisk", onDisk, "notStored", lost)
		})
	}
	group.Wait()
}

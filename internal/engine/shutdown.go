package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// stalled is the maximum time without an acknowledgement during shutdown. After that time the sink's drain is stopped.
	stalled = time.Second
	// progressTick is the interval at which finishDelivery checks for acknowledgements.
	progressTick = 20 * time.Millisecond
	// closeTimeout is the maximum time for closing a sink's connections. cutTimeout applies instead if the sink's drain
	// ended before it had delivered all events.
	closeTimeout = 5 * time.Second
	cutTimeout   = 100 * time.Millisecond
	// replaceTimeout is the maximum time that a sink may continue to deliver when the engine is replaced. The other sinks
	// wait for it.
	replaceTimeout = 2 * time.Second
)

// lingerTick is the interval at which linger checks whether events wait.
const lingerTick = 100 * time.Millisecond

// linger waits as Options.Linger says.
func (e *Engine) linger() {
	if e.options.Linger == nil {
		return
	}
	ticker := time.NewTicker(lingerTick)
	defer ticker.Stop()
	for slices.ContainsFunc(e.pipelines, func(p *pipeline) bool {
		return p.queue.Stats().Items > 0 || len(p.drain.Parked.Queues()) > 0
	}) {
		select {
		case <-e.options.Linger:
			return
		case <-ticker.C:
		}
	}
}

// finishDelivery lets the drains deliver the queued events until the timeout. A drain whose destination does
// not accept events is stopped at once. Events that a drain leaves are written to disk.
func finishDelivery(pipelines []*pipeline, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var group sync.WaitGroup
	for _, p := range pipelines {
		p.queue.Close()
		group.Go(func() { p.finishDelivery(ctx) })
	}
	group.Wait()
}

// finishDelivery waits until the drain has ended. It stops the drain if ctx ends or the destination accepts no events.
func (p *pipeline) finishDelivery(ctx context.Context) {
	ticker := time.NewTicker(progressTick)
	defer ticker.Stop()
	acked, since := p.queue.Stats().Acked, time.Now()
	for p.mayDeliver() && time.Since(since) < stalled && ctx.Err() == nil {
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
}

// mayDeliver reports whether the destination accepts events, or may accept waiting ones as soon as it is connected.
func (p *pipeline) mayDeliver() bool {
	_, failed := p.drain.Failure()
	return failed == nil && p.drain.PausedSince().IsZero() && (p.drain.Connected() || p.queue.Stats().Items > 0)
}

// closeSinks closes the connections of all sinks concurrently, and logs how many events each sink leaves undelivered.
func closeSinks(pipelines []*pipeline) {
	var group sync.WaitGroup
	for _, p := range pipelines {
		group.Go(func() {
			timeout := closeTimeout
			if p.queue.Stats().Items > 0 {
				timeout = cutTimeout
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			p.close(ctx)
			onDisk, lost := p.left()
			if onDisk+lost == 0 {
				p.log.Info("queue is empty")
				return
			}
			p.log.Warn("events left undelivered", "onDisk", onDisk, "notStored", lost)
		})
	}
	group.Wait()
}

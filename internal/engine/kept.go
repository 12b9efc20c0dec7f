package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/tracker"
)

// Kept contains the deliveries that an engine has left running for the next one, which continues with a changed
// configuration. They go on sending what waits in their queues.
type Kept struct {
	deliveries []*delivery.Delivery
	timeout    time.Duration
}

// Close ends what no engine has continued, as at the end of Engine.Run. A nil *Kept is valid and does nothing.
func (k *Kept) Close() error {
	if k == nil {
		return nil
	}
	err := delivery.Finish(k.deliveries, k.timeout)
	delivery.Close(k.deliveries)
	return err
}

// of returns the delivery of a sink that an earlier engine has kept, or nil. What Options.Sinks contains of another
// delivery is not used then. A nil *Kept has none.
func (k *Kept) of(sink string) *delivery.Delivery {
	if k == nil {
		return nil
	}
	n := slices.IndexFunc(k.deliveries, func(d *delivery.Delivery) bool { return d.SinkName() == sink })
	if n < 0 {
		return nil
	}
	return k.deliveries[n]
}

// deliveries returns the deliveries of pipelines.
func deliveries(of []*pipeline) (all []*delivery.Delivery) {
	for _, p := range of {
		all = append(all, p.Delivery)
	}
	return all
}

// persistTimeout is how long an engine that is replaced waits until the events that wait for a sink are on disk.
const persistTimeout = 5 * time.Second

// Replace makes Run end, so that another engine can continue with a changed configuration in the same process. The
// sinks for which keep returns true are not disturbed: Kept returns them after Run. Call Replace at most once.
func (e *Engine) Replace(keep func(sink string) bool) {
	e.keep = keep
	close(e.replaced)
}

// Kept returns what the engine has kept for the next one. It is nil if Run has not ended because of Replace. The caller
// must give it to the next engine, or close it.
func (e *Engine) Kept() *Kept { return e.kept }

// Undelivered returns the number of events that wait on disk, by sink, of the sinks that were not kept. Audit events
// that arrived after reading ended do not count. Call it when Run has returned.
func (e *Engine) Undelivered() map[string]int64 { return e.undelivered }

// CanEnd returns an error if Run cannot end in good order now, because the checkpoint cannot be written.
func (e *Engine) CanEnd() error {
	if err := e.tracker.NotReady(); err != nil && !errors.Is(err, tracker.ErrNoAPIServer) {
		return err
	}
	return nil
}

// Stuck returns the number of events, by sink, that wait for destinations that do not take them now.
func (e *Engine) Stuck() map[string]int64 {
	stuck := map[string]int64{}
	for _, p := range e.pipelines {
		stuck[p.Name] += p.Parked()
		if p.Drain.Delivering() {
			continue
		}
		stuck[p.Name] += int64(p.Queue.Stats().Items)
		if p.audit != nil { // the journal has what is not in the queue
			stuck[p.Name] += p.audit.Waiting()
		}
	}
	return stuck
}

// keepDeliveries chooses the pipelines whose deliveries go on running. Everything that such a pipeline was sent is
// settled, so that all its positions in the next commit are where reading has ended. A pipeline that cannot settle
// everything soon, or that was sent only a part of a list, is not kept: what a restart does for it is exact too.
func (e *Engine) keepDeliveries() (kept, others []*pipeline) {
	ctx, cancel := context.WithTimeout(context.Background(), persistTimeout)
	defer cancel()
	for _, p := range e.pipelines {
		if _, whole := p.unsettled(); whole && e.keep(p.Name) && !p.Introducing.Load() {
			p.Queue.Persist()
			kept = append(kept, p)
		} else {
			others = append(others, p)
		}
	}
	ticker := time.NewTicker(settledPause)
	defer ticker.Stop()
	isSettled := func(p *pipeline) bool {
		events, _ := p.unsettled()
		return events == 0
	}
	for ctx.Err() == nil && slices.ContainsFunc(kept, func(p *pipeline) bool { return !isSettled(p) }) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	kept = slices.DeleteFunc(kept, func(p *pipeline) bool {
		if isSettled(p) {
			p.Queue.Restore()
			return false
		}
		others = append(others, p)
		return true
	})
	return kept, others
}

// unsettled returns the number of events that the sink has not settled, and whether it was sent either the whole
// initial list or nothing of each source.
func (p *pipeline) unsettled() (events int, whole bool) {
	if p.audit != nil {
		return p.audit.InFlight(), true
	}
	return p.tracker.Unsettled(p.Name)
}

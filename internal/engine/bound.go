package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

const (
	// maxHeld is how many bytes of row changes all ledgers together may hold while they wait for sinks to settle something.
	maxHeld = 32 << 20
	// crowdedFrom is how many make the engine commit at once, and the queues write to disk.
	crowdedFrom = maxHeld / 2
	// relieveInterval is how often that is tried at most.
	relieveInterval = 50 * time.Millisecond
)

// makeRoom is called when a source has reached a position. If the ledgers hold much, it has them relieved. If they hold too
// much, it waits until they hold less, or ctx ends: the source is not read meanwhile. It does not wait where that
// would not help: where sinks that drop or merge events hold the ledger, which is squeezed then, or where the source has
// to go on first.
func (e *Engine) makeRoom(ctx context.Context, l *checkpoint.Ledger) {
	for e.held.Load() > crowdedFrom {
		select {
		case e.crowded <- struct{}{}:
		default:
		}
		if e.held.Load() <= maxHeld || l.Held() == 0 || l.GivingList() || e.onlyLossy(l.HeldBy()) || !pause(ctx, relieveInterval) {
			return
		}
	}
}

func (e *Engine) onlyLossy(sinks []string) bool {
	return len(sinks) > 0 && !slices.ContainsFunc(sinks, func(sink string) bool { return !e.lossy[sink] })
}

// relieve makes ledgers hold less: it commits, has the queues write to disk what holds the watermarks, and squeezes the
// ledgers that sinks hold which drop or merge events.
func (e *Engine) relieve(ctx context.Context) {
	e.commit()
	if e.held.Load() <= crowdedFrom {
		e.full(false)
		return
	}
	if e.persist != nil {
		e.persist()
	}
	pause(ctx, relieveInterval)
	e.commit()
	if e.held.Load() <= maxHeld {
		return
	}
	for _, l := range e.ledgers() {
		if e.onlyLossy(l.HeldBy()) {
			l.Squeeze()
		}
	}
	e.full(e.held.Load() > maxHeld)
}

// full logs when the ledgers come to hold too much, and when they no longer do. Only Run calls it.
func (e *Engine) full(now bool) {
	if now == e.isFull {
		return
	}
	if e.isFull = now; !now {
		e.log.Info("changes that wait for sinks take little memory again")
		return
	}
	waitFor := map[string]bool{}
	for _, l := range e.ledgers() {
		for _, sink := range l.HeldBy() {
			waitFor[sink] = true
		}
	}
	e.log.Warn("too many changes wait for sinks that can neither deliver nor spill events: reading may have to wait", "sinks", slices.Sorted(maps.Keys(waitFor)))
}

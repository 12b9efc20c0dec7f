package tracker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/ledger"
)

const (
	// maxHeld is how many bytes of row changes all ledgers together may hold while they wait for sinks to settle
	// something.
	maxHeld = 32 << 20
	// crowdedFrom is how many make the tracker commit at once, and the queues write to disk. In a burst it sets how
	// often rows are written: with half of maxHeld, a replay to Kafka costs 5 % more CPU.
	crowdedFrom = maxHeld / 4 * 3
	// relieveInterval is how often that is tried at most.
	relieveInterval = 50 * time.Millisecond
)

// makeRoom is called when a source has reached a position. If the ledgers hold much, it makes Run relieve them. If they
// hold too much, it waits until they hold less, or ctx ends: the source is not read meanwhile. It does not wait if that
// would not help: if sinks that drop or merge events hold the ledger, which is then squeezed, or if the source has to
// go on first.
func (t *Tracker) makeRoom(ctx context.Context, l *ledger.Ledger) {
	for t.held.Load() > crowdedFrom {
		select {
		case t.crowded <- struct{}{}:
		default:
		}
		if t.held.Load() <= maxHeld || l.Held() == 0 || l.GivingList() || t.onlyLossy(l.HeldBy()) ||
			!pause(ctx, relieveInterval) {
			return
		}
	}
}

func (t *Tracker) onlyLossy(sinks []string) bool {
	return len(sinks) > 0 && !slices.ContainsFunc(sinks, func(sink string) bool { return !t.lossy[sink] })
}

// relieve makes ledgers hold less: it commits, makes the queues write to disk what holds the watermarks, and squeezes
// the ledgers that are held by sinks that drop or merge events.
func (t *Tracker) relieve(ctx context.Context) {
	t.commit()
	if t.held.Load() <= crowdedFrom {
		t.reportFull(false)
		return
	}
	t.queues.Persist()
	pause(ctx, relieveInterval)
	t.commit()
	if t.held.Load() <= maxHeld {
		return
	}
	for _, l := range t.ledgers() {
		if t.onlyLossy(l.HeldBy()) {
			l.Squeeze()
		}
	}
	t.reportFull(t.held.Load() > maxHeld)
}

// reportFull logs when the ledgers begin to hold too much, and when they no longer do. Only Run calls it.
func (t *Tracker) reportFull(now bool) {
	if now == t.isFull {
		return
	}
	if t.isFull = now; !now {
		t.log.Info("changes that wait for sinks take little memory again")
		return
	}
	waitFor := map[string]bool{}
	for _, l := range t.ledgers() {
		for _, sink := range l.HeldBy() {
			waitFor[sink] = true
		}
	}
	t.log.Warn("too many changes wait for sinks that can neither deliver nor spill events, reading may have to wait",
		"sinks", slices.Sorted(maps.Keys(waitFor)))
}

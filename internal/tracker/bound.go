package tracker

import (
	"context"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

const (
	// maxHeld is the maximum size, in bytes, of the row changes that all ledgers together may hold while they wait for
	// sinks to settle events.
	maxHeld = 64 << 20
	// crowdedFrom is the size from which the tracker asks the queues to write to disk. In a burst of changes it determines
	// how often the rows of the same objects are written: with half of both sizes, a replay to Kafka costs 30 % more CPU.
	crowdedFrom = maxHeld / 4 * 3
	// commitAfter is the growth since the last commit after which the tracker commits at once. A commit uses several times
	// the memory of its rows.
	commitAfter = 20 << 20
	// runAhead is the growth since the last commit after which sources wait for a commit that is running. If other
	// programs use the processors, a commit takes long, and the next one would be larger.
	runAhead = commitAfter / 2 * 3
	// relieveInterval is the minimum interval between two attempts to make room.
	relieveInterval = 50 * time.Millisecond
)

// makeRoom limits the memory of the ledgers. It is called when the position of a source has advanced. If the ledgers
// hold more than crowdedFrom, or have grown by more than commitAfter, it asks Run to relieve them. If they hold more
// than maxHeld, or have grown by more than runAhead, it waits until they hold less or ctx ends, and the source is not
// read during that time. It does not wait if waiting cannot help: if the source's ledger holds nothing, if the source
// must first finish an initial list, or if only sinks that drop or merge events hold up the ledger, which Run then
// squeezes.
func (t *Tracker) makeRoom(ctx context.Context, l *ledger.Ledger) {
	for t.held.Load() > min(crowdedFrom, t.left.Load()+commitAfter) {
		select {
		case t.crowded <- struct{}{}:
		default:
		}
		limit := min(maxHeld, t.left.Load()+runAhead)
		if t.held.Load() <= limit || l.Held() == 0 || l.GivingList() || t.onlyLossy(l.HeldBy()) ||
			!pause.For(ctx, relieveInterval) {
			return
		}
	}
}

func (t *Tracker) onlyLossy(sinks []string) bool {
	return len(sinks) > 0 && !slices.ContainsFunc(sinks, func(sink string) bool { return !t.lossy[sink] })
}

// relieve reduces the size of the ledgers. It commits, then asks the queues to write the waiting events to disk, which
// settles these events, and commits again. If the ledgers still hold too much, it squeezes every ledger that only sinks
// that drop or merge events hold up.
func (t *Tracker) relieve(ctx context.Context) {
	_ = t.Commit() // the error is logged
	if t.held.Load() <= crowdedFrom {
		return
	}
	t.queues.Persist()
	pause.For(ctx, relieveInterval)
	_ = t.Commit()
	if t.held.Load() <= maxHeld {
		return
	}
	for _, l := range t.ledgers() {
		if t.onlyLossy(l.HeldBy()) {
			l.Squeeze()
		}
	}
}

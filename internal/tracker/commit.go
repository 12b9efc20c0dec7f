package tracker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Run commits until ctx ends, and once more then. The error is that of the last commit.
func (t *Tracker) Run(ctx context.Context) error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	pace, last := newCommitPace(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return t.Flush()
		case <-t.crowded:
			t.relieve(ctx)
			last = time.Now()
			continue
		case <-ticker.C:
		}
		if began := time.Now(); pace.due(t.waiting(), began.Sub(last)) {
			rows, size := t.commit()
			last = began
			pace.learn(rows, size, time.Since(began))
		}
	}
}

// Flush writes what is settled now.
func (t *Tracker) Flush() error {
	t.commit()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastErr
}

// waiting is how many rows changed since they were written.
func (t *Tracker) waiting() (rows int) {
	for _, l := range t.ledgers() {
		rows += l.Waiting()
	}
	return rows
}

// commit writes what was settled since the last time, in one transaction. It gives the number of its rows, and the size of
// their objects.
func (t *Tracker) commit() (rows, size int) {
	ledgers := t.ledgers()
	var updates []checkpoint.Update
	var from []*checkpoint.Ledger
	for _, name := range slices.Sorted(maps.Keys(ledgers)) {
		if u, ok := ledgers[name].Collect(); ok {
			updates, from = append(updates, u), append(from, ledgers[name])
			rows += len(u.Upserts) + len(u.Deletes)
			for _, o := range u.Upserts {
				size += len(o.Raw)
			}
		}
	}
	defer t.finishLeaving()
	if len(updates) == 0 {
		return 0, 0
	}
	err := t.store.Commit(updates, t.filters)
	for n, u := range updates {
		if err != nil {
			from[n].Failed(u)
		} else {
			from[n].Written(u)
		}
	}
	t.report(err)
	return rows, size
}

// report keeps the outcome of a commit, and logs it if it is news.
func (t *Tracker) report(err error) {
	t.mu.Lock()
	t.lastErr = err
	t.mu.Unlock()
	if err == nil {
		t.mu.Lock()
		before := t.failing
		t.failing = ""
		t.mu.Unlock()
		if before != "" {
			t.log.Info("checkpoint is written again")
		}
		return
	}
	if t.fail("checkpoint can't be written: " + err.Error()) {
		t.log.Error("checkpoint can't be written: a restart would repeat more, and could miss deletions; trying again", "err", err)
	}
}

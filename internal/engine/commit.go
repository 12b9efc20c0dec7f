package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// Run commits until ctx ends, and once more then. The error is that of the last commit.
func (e *Engine) Run(ctx context.Context) error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	pace, last := newCommitPace(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return e.Flush()
		case <-e.crowded:
			e.relieve(ctx)
			last = time.Now()
			continue
		case <-ticker.C:
		}
		if began := time.Now(); pace.due(e.waiting(), began.Sub(last)) {
			rows, size := e.commit()
			last = began
			pace.learn(rows, size, time.Since(began))
		}
	}
}

// Flush writes what is settled now.
func (e *Engine) Flush() error {
	e.commit()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lastErr
}

// waiting is how many rows changed since they were written.
func (e *Engine) waiting() (rows int) {
	for _, l := range e.ledgers() {
		rows += l.Waiting()
	}
	return rows
}

// commit writes what was settled since the last time, in one transaction. It gives the number of its rows, and the size of
// their objects.
func (e *Engine) commit() (rows, size int) {
	ledgers := e.ledgers()
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
	defer e.finishLeaving()
	if len(updates) == 0 {
		return 0, 0
	}
	err := e.store.Commit(updates, e.filters)
	for n, u := range updates {
		if err != nil {
			from[n].Failed(u)
		} else {
			from[n].Written(u)
		}
	}
	e.report(err)
	return rows, size
}

// report keeps the outcome of a commit, and logs it if it is news.
func (e *Engine) report(err error) {
	e.mu.Lock()
	e.lastErr = err
	e.mu.Unlock()
	if err == nil {
		e.mu.Lock()
		before := e.failing
		e.failing = ""
		e.mu.Unlock()
		if before != "" {
			e.log.Info("checkpoint is written again")
		}
		return
	}
	if e.fail("checkpoint can't be written: " + err.Error()) {
		e.log.Error("checkpoint can't be written: a restart would repeat more, and could miss deletions; trying again", "err", err)
	}
}

package tracker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/ledger"
)

// commitInterval is the interval between commits. After a crash, the sources bring events that were settled after the
// last commit again.
const commitInterval = time.Second

// Run commits once a second until ctx ends, and earlier if the ledgers must be relieved. When ctx ends, it
// commits a last time and returns the error of this commit.
func (t *Tracker) Run(ctx context.Context) error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return t.Commit()
		case <-t.crowded:
			t.relieve(ctx)
		case <-ticker.C:
			_ = t.Commit() // the error is logged and the rows are committed again
			t.second()
		}
	}
}

// Commit writes everything that was settled since the previous commit, and the positions that this permits, in one
// transaction. Then it removes the sources that are no longer watched. It returns the error of the last write to the
// store.
func (t *Tracker) Commit() error {
	t.committing.Lock()
	defer t.committing.Unlock()
	bookmarks, ledgers := t.goneBookmarks(), t.ledgers()
	var updates []ledger.Update
	var from []*ledger.Ledger
	for _, name := range slices.Sorted(maps.Keys(ledgers)) {
		if u, ok := ledgers[name].Collect(); ok {
			updates, from = append(updates, u), append(from, ledgers[name])
		}
	}
	positions := covered(bookmarks, ledgers)
	if len(updates)+len(positions) > 0 {
		var filters map[string]string
		if len(updates) > 0 { // otherwise Identify has perhaps not stored the filters yet, and they can still change
			filters = t.currentFilters()
		}
		err := t.store.Commit(updates, filters, positions)
		for _, l := range from {
			if err != nil {
				l.TakeBack()
			} else {
				l.Confirm()
			}
		}
		if err == nil {
			t.dropBookmarks(positions)
		}
		t.report(err)
	}
	t.left.Store(t.held.Load())
	t.finishLeaving()
	return t.NotReady()
}

// report records the result of a write to the store. It logs when writes begin to fail, and when they succeed again.
func (t *Tracker) report(err error) {
	var why error
	if err != nil {
		why = fmt.Errorf("checkpoint cannot be written: %w", err)
	}
	switch before := t.fail(why); {
	case err == nil && before != nil:
		t.log.Info("checkpoint can be written again")
	case err != nil && before == nil:
		t.log.Error("cannot write the checkpoint, retrying: a restart continues from what was last written", "err", err)
	}
}

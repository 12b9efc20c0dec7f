package tracker

import (
	"maps"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// bookmark contains positions of a sink that become valid when a restart no longer brings any of the events that were
// sent before them.
type bookmark struct {
	positions sinks.Positions
	// gone reports whether the queue of the sink will bring none of these events again.
	gone func() bool
	// recorded contains, by source, the number up to which the watermark of the sink must cover everything.
	recorded map[string]uint64
}

// Resumes returns the information about earlier processes that a sink requires to read back the events that they sent.
func (t *Tracker) Resumes(sink string) sinks.Resume {
	return sinks.Resume{
		Writer:    t.store.Installation() + "/" + sink,
		Positions: t.store.Positions(sink),
		Store: func(positions sinks.Positions) error {
			return t.store.AddPositions(map[string]sinks.Positions{sink: positions})
		},
	}
}

// AddPositions replaces positions of sinks. They are durable when it returns nil.
func (t *Tracker) AddPositions(positions map[string]sinks.Positions) error {
	return t.store.AddPositions(positions)
}

// Positions returns the stored positions of a sink. The caller must not change the map.
func (t *Tracker) Positions(sink string) sinks.Positions { return t.store.Positions(sink) }

// CaughtUp must be called when all sources have brought again the events that earlier processes may have sent without
// committing them. Until then, the positions of earlier processes remain stored.
func (t *Tracker) CaughtUp() { t.caughtUp.Store(true) }

// HasCaughtUp reports whether CaughtUp was called.
func (t *Tracker) HasCaughtUp() bool { return t.caughtUp.Load() }

// NeedsBookmark reports whether Bookmark would have an effect for a sink. If not, the caller does not have to find out
// the positions. Until all sources have caught up, only a sink that has found nothing may call Bookmark
// (sinks.Resumer.FoundNothing).
func (t *Tracker) NeedsBookmark(sink string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bookmarks[sink] == nil
}

// Bookmark stores the positions of a sink as soon as a restart would not bring any event again that was sent before
// them: when gone returns true, and the watermarks of a commit cover everything that the ledgers have recorded until
// now. From then on, this process does not bring them again either. While Bookmark is called, no message of the sink
// may be in flight. Bookmark returns false if there is nothing to store. Otherwise, NeedsBookmark returns true again
// when the positions are stored.
func (t *Tracker) Bookmark(sink string, positions sinks.Positions, gone func() bool) bool {
	b := &bookmark{positions: positions, gone: gone, recorded: map[string]uint64{}}
	for name, l := range t.ledgers() {
		if number := l.Recorded(sink); number > 0 {
			b.recorded[name] = number
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	stored := t.store.Positions(sink)
	maps.DeleteFunc(b.positions, func(part string, p sinks.Position) bool { return stored[part] == p })
	if len(b.positions) == 0 || t.bookmarks[sink] != nil {
		return false
	}
	t.bookmarks[sink] = b
	return true
}

// goneBookmarks returns the bookmarks whose events the queues will not bring again. It must be called before the
// ledgers are collected.
func (t *Tracker) goneBookmarks() map[string]*bookmark {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := maps.Clone(t.bookmarks)
	maps.DeleteFunc(gone, func(_ string, b *bookmark) bool { return !b.gone() })
	return gone
}

// covered returns the positions of the bookmarks that are covered by the watermarks of the last Collect.
func covered(bookmarks map[string]*bookmark, ledgers map[string]*ledger.Ledger) map[string]sinks.Positions {
	positions := map[string]sinks.Positions{}
	for sink, b := range bookmarks {
		all := true
		for source, number := range b.recorded {
			l := ledgers[source]
			all = all && (l == nil || l.Covers(sink, number))
		}
		if all {
			positions[sink] = b.positions
		}
	}
	return positions
}

// dropBookmarks removes the bookmarks of the sinks whose positions are stored.
func (t *Tracker) dropBookmarks(stored map[string]sinks.Positions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for sink := range stored {
		delete(t.bookmarks, sink)
	}
}

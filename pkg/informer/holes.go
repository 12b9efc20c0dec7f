package informer

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// holes notes what ListerWatcher.Malformed tells of. It is told by the goroutine of the watch, which is a few events
// ahead of the Reflector's; the store announces it with the next thing that it is given.
type holes struct {
	waiting atomic.Pointer[hole] // not announced yet
	inList  atomic.Bool          // the last watch-list lacks a document
	logs    rate.Sometimes
}

// hole is a place in the stream where a change may be missing.
type hole struct{ from, why string }

// malformed is a ListerWatcher.Malformed.
func (i *Informer) malformed(err error, skipped bool) {
	from := i.status.malformed()
	i.holes.logs.Do(func() {
		i.log.Warn("document in the watch is no event", "after", from, "skipped", skipped, "err", err)
	})
	if !skipped {
		return // it is asked for once more
	}
	i.holes.inList.Store(true)
	// A hole that waits already begins before this one.
	i.holes.waiting.CompareAndSwap(nil, &hole{from: from, why: "a document in the watch was no event: " + err.Error()})
}

// announceHole tells the observers of the hole that waits, if there is one. It begins at the last change that was
// handed over when the document was read; where it ends is not known. The caller holds mu.
func (i *Informer) announceHole() {
	h := i.holes.waiting.Swap(nil)
	if h == nil {
		return
	}
	for _, r := range i.handlers {
		r.observeGap(h.from, "", h.why)
	}
}

const malformedLogPeriod = time.Minute

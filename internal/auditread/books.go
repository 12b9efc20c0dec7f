package auditread

import (
	"slices"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// books note which numbers of the journal a sink has settled, in place of a ledger.
type books struct {
	journal   *audit.Journal
	maxEvents int
	maxBytes  int64
	settled   chan struct{} // contains an element after an event was settled

	mu    sync.Mutex // guards the following fields
	open  []pushed   // in the order of their numbers, beginning with one that is not settled
	bytes int64      // of the events in open
	// at is the position up to which everything is settled. It is zero while a gap before it is not announced.
	at audit.Position
}

// pushed is a message that was pushed to the queue, or one behind it that is settled.
type pushed struct {
	number  uint64 // of the last event in the journal for which the message stands
	bytes   int64
	settled bool
}

// start sets the number up to which the sink has everything.
func (b *books) start(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = audit.Position{Journal: b.journal.ID(), Number: number}
}

// hasRoom reports whether another message may be in flight.
func (b *books) hasRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open) < b.maxEvents && b.bytes < b.maxBytes
}

// track notes a message that is about to be pushed. It returns the number for Origin.Seq, which is not 0.
func (b *books) track(number uint64, bytes int64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, pushed{number: number, bytes: bytes})
	b.bytes += bytes
	return number + 1
}

// skip notes that nothing is sent for the events up to the number.
func (b *books) skip(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch last := len(b.open) - 1; {
	case last < 0:
		b.at.Number = number
	case b.open[last].settled:
		b.open[last].number = number
	default:
		b.open = append(b.open, pushed{number: number, settled: true})
	}
}

// settle notes that the message with the number from track is settled. A message that another engine has pushed may not
// be in flight here.
func (b *books) settle(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := slices.IndexFunc(b.open, func(f pushed) bool { return f.number+1 == seq && !f.settled })
	if n < 0 {
		return
	}
	b.open[n].settled = true
	done := 0
	for ; done < len(b.open) && b.open[done].settled; done++ {
		b.bytes -= b.open[done].bytes
		b.at = audit.Position{Journal: b.journal.ID(), Number: b.open[done].number}
	}
	b.open = slices.Delete(b.open, 0, done)
	select {
	case b.settled <- struct{}{}:
	default:
	}
}

// InFlight returns the number of messages in flight.
func (b *books) InFlight() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// Backlog returns the number of events in the journal that the sink has not settled.
func (b *books) Backlog() int64 { return b.BacklogUpTo(b.journal.Status().Last) }

// BacklogUpTo is like Backlog, without the events after the number.
func (b *books) BacklogUpTo(number uint64) int64 {
	at := b.Settled()
	if at.Journal == "" {
		at.Number = b.journal.Status().Acked
	}
	return max(0, int64(number)-int64(at.Number))
}

// Waiting returns the number of events in the journal that are not in flight.
func (b *books) Waiting() int64 { return max(0, b.Backlog()-int64(b.InFlight())) }

// Settled returns the position up to which the sink has settled everything, or the zero Position if it has not begun.
func (b *books) Settled() audit.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

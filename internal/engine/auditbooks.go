package engine

import (
	"slices"
	"sync"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// auditBooks are the books of a sink that is sent audit events. They note which numbers of the journal are settled, in
// place of the ledgers.
type auditBooks struct {
	*tracker.Tracker

	sink      string
	journal   *audit.Journal
	maxEvents int
	maxBytes  int64
	progress  chan struct{} // contains an element after an event was settled

	announcements announcements

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
func (b *auditBooks) start(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = audit.Position{Journal: b.journal.ID(), Number: number}
}

// hasRoom reports whether another message may be in flight.
func (b *auditBooks) hasRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open) < b.maxEvents && b.bytes < b.maxBytes
}

// track notes a message that is about to be pushed. It returns the number for Origin.Seq, which is not 0.
func (b *auditBooks) track(number uint64, bytes int64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, pushed{number: number, bytes: bytes})
	b.bytes += bytes
	return number + 1
}

// skip notes that nothing is sent for the events up to the number.
func (b *auditBooks) skip(number uint64) {
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

// Settle implements books. A message that another engine has pushed may not be in flight here.
func (b *auditBooks) Settle(_ string, m *event.Message) {
	if m.Origin.Seq&announced != 0 {
		b.announcements.settle(m.Origin.Seq)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := slices.IndexFunc(b.open, func(f pushed) bool { return f.number+1 == m.Origin.Seq && !f.settled })
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
	case b.progress <- struct{}{}:
	default:
	}
}

// inFlight returns the number of messages in flight.
func (b *auditBooks) inFlight() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// backlog returns the number of events in the journal that the sink has not settled.
func (b *auditBooks) backlog() int64 { return b.backlogUpTo(b.journal.Status().Last) }

// backlogUpTo is like backlog, without the events after the number.
func (b *auditBooks) backlogUpTo(number uint64) int64 {
	at := b.settledAt()
	if at.Journal == "" {
		at.Number = b.journal.Status().Acked
	}
	return max(0, int64(number)-int64(at.Number))
}

// settledAt returns the position up to which everything is settled, or the zero Position.
func (b *auditBooks) settledAt() audit.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// The parts of sinks.Positions in which the place of a sink in the journal is stored.
const (
	auditDelivered = "audit journal"        // up to where the sink has everything
	auditEnd       = "end of audit journal" // where the journal ended
)

// stored returns the position that is stored for the sink.
func (b *auditBooks) stored() audit.Position { return AuditDelivered(b.Positions(b.sink)) }

// AuditDelivered returns the stored position in the audit journal up to which a sink has everything, or the zero
// Position.
func AuditDelivered(of sinks.Positions) audit.Position { return auditPosition(of[auditDelivered]) }

func auditPosition(p sinks.Position) audit.Position {
	if p.Journal == "" {
		return audit.Position{}
	}
	return audit.Position{Journal: p.Journal, Number: uint64(p.Next) - 1}
}

// storePositions stores up to where the sinks have everything, and the end of the journal.
func storePositions(to *tracker.Tracker, journal *audit.Journal, readers map[string]*auditReader) error {
	position := func(number uint64) sinks.Position {
		return sinks.Position{Journal: journal.ID(), Next: int64(number) + 1}
	}
	all := map[string]sinks.Positions{}
	for sink, r := range readers {
		if at := r.settledAt(); at.Journal != "" {
			all[sink] = sinks.Positions{auditDelivered: position(at.Number), auditEnd: position(journal.Status().Last)}
		}
	}
	return to.AddPositions(all)
}

// AuditPositions returns what the stored positions of a sink contain about the audit journal. The journal is opened
// with them (audit.JournalOptions.Known).
func AuditPositions(of sinks.Positions) (all []audit.Position) {
	for _, part := range []string{auditDelivered, auditEnd} {
		if p := auditPosition(of[part]); p.Journal != "" {
			all = append(all, p)
		}
	}
	return all
}

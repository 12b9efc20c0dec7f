package auditread

import (
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// The parts of sinks.Positions in which the place of a sink in the journal is stored.
const (
	deliveredPart = "audit journal"        // up to where the sink has everything
	endPart       = "end of audit journal" // where the journal ended
)

// Delivered returns the stored position in the audit journal up to which a sink has everything, or the zero Position.
func Delivered(of sinks.Positions) audit.Position { return positionOf(of[deliveredPart]) }

// Known returns what the stored positions of a sink contain about the audit journal. The journal is opened with them
// (audit.JournalOptions.Known).
func Known(of sinks.Positions) (all []audit.Position) {
	for _, part := range []string{deliveredPart, endPart} {
		if p := positionOf(of[part]); p.Journal != "" {
			all = append(all, p)
		}
	}
	return all
}

func positionOf(p sinks.Position) audit.Position {
	if p.Journal == "" {
		return audit.Position{}
	}
	return audit.Position{Journal: p.Journal, Number: uint64(p.Next) - 1}
}

// stored returns the position that is stored for the sink.
func (r *Reader) stored() audit.Position { return Delivered(r.Tracker.Positions(r.Sink)) }

// Commit stores up to where the sinks of the readers have everything, and removes the events from the journal that all
// of them have. It must not be called by several goroutines at once.
func Commit(to *tracker.Tracker, journal *audit.Journal, readers []*Reader) error {
	if err := storePositions(to, journal, readers); err != nil {
		return err
	}
	upTo := journal.Status().Last
	for _, r := range readers {
		stored := r.stored()
		if stored.Journal != journal.ID() {
			return nil // it has not begun yet
		}
		upTo = min(upTo, stored.Number)
	}
	if upTo <= journal.Status().Acked {
		return nil
	}
	if err := journal.Ack(upTo); err != nil && !errors.Is(err, audit.ErrClosed) {
		return fmt.Errorf("remove delivered audit events: %w", err)
	}
	return nil
}

// storePositions stores up to where the sinks have everything, and the end of the journal.
func storePositions(to *tracker.Tracker, journal *audit.Journal, readers []*Reader) error {
	all := map[string]sinks.Positions{}
	for _, r := range readers {
		if at := r.Settled(); at.Journal != "" {
			all[r.Sink] = sinks.Positions{
				deliveredPart: {Journal: journal.ID(), Next: int64(at.Number) + 1},
				endPart:       {Journal: journal.ID(), Next: int64(journal.Status().Last) + 1},
			}
		}
	}
	return to.AddPositions(all)
}

package auditread

import (
	"context"
	"sync"
	"time"
)

// announced is the bit of Origin.Seq that marks a gap event which stands for no number of the journal.
const announced = 1 << 63

// announcements are the gap events about audit events of other replicas. The zero value is valid. It is safe for
// concurrent use.
type announcements struct {
	mu      sync.Mutex
	numbers map[string]uint64 // by id
	settled map[uint64]bool   // by number
	last    uint64            // number
}

// number returns the number of an announcement, and whether it is settled. fresh means that it was not known.
func (a *announcements) number(id string) (number uint64, fresh, settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.numbers == nil {
		a.numbers, a.settled = map[string]uint64{}, map[uint64]bool{}
		a.last = announced | uint64(time.Now().UnixNano()) // differs from the numbers of an earlier process in the spill
	}
	number, known := a.numbers[id]
	if !known {
		a.last++
		number = a.last
		a.numbers[id], a.settled[number] = number, false
	}
	return number, !known, a.settled[number]
}

func (a *announcements) settle(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.settled[number]; known {
		a.settled[number] = true
	}
}

// forget forgets an announcement that could not be pushed.
func (a *announcements) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.numbers, id)
}

// Announce sends a gap event about audit events of another replica, unless it was sent before. It reports whether the
// gap event is settled. Until then, the caller calls it again, with the same id. While the sink does not deliver, it
// sends nothing.
func (r *Reader) Announce(ctx context.Context, id, why string) (settled bool) {
	if !r.Delivering() {
		return false
	}
	number, fresh, settled := r.announcements.number(id)
	if !fresh {
		return settled
	}
	m := r.Gap(0, why)
	m.ID += "." + id
	m.Origin.Seq = number
	if !r.queue(ctx, m) {
		r.announcements.forget(id)
	}
	return false
}

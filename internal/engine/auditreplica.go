package engine

import (
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
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

// AnnounceAuditLoss sends a gap event to all sinks that are sent audit events, because another replica may have lost
// some. It returns true if all sinks have delivered it. Until then, the caller calls it again, with the same id. It can
// be called by one goroutine while Run runs.
func (e *Engine) AnnounceAuditLoss(id, why string) (delivered bool) {
	delivered = true
	for _, p := range e.pipelines {
		delivered = p.audit.announce(id, why) && delivered
	}
	return delivered && !e.auditOnDisk()
}

// announce sends a gap event, unless it was sent before, and reports whether it is settled. While the sink does not
// deliver, it sends nothing.
func (r *auditReader) announce(id, why string) (settled bool) {
	if !r.p.drain.Delivering() {
		return false
	}
	number, fresh, settled := r.announcements.number(id)
	if !fresh {
		return settled
	}
	m := auditGap(r.p, 0, why)
	m.ID += "." + id
	m.Origin.Seq = number
	r.metrics.Queue(m)
	if err := r.p.push(r.reading, m); err != nil { // only during shutdown
		r.metrics.Unqueue(m)
		r.announcements.forget(id)
	}
	return false
}

// auditOnDisk reports whether events wait in the spill or in the parked events of a sink. The books count them as
// settled, because a restart delivers them.
func (e *Engine) auditOnDisk() bool {
	for _, p := range e.pipelines {
		if events, _, _, _, _ := p.queue.SpillStats(); events > 0 || len(p.drain.Parked.Queues()) > 0 {
			return true
		}
	}
	return false
}

// AuditDelivered returns the number of the journal up to which the destinations of all sinks have everything. ok is
// false if that is not known, because events wait on disk outside the journal.
func (e *Engine) AuditDelivered() (upTo uint64, ok bool) {
	upTo = e.options.Journal.Status().Last
	for _, r := range e.auditReaders() {
		at := r.settledAt()
		if at == (audit.Position{}) {
			return 0, false // it has not begun yet
		}
		upTo = min(upTo, at.Number)
	}
	return upTo, !e.auditOnDisk() // read last: what was spilled before is settled
}

// DeliversAudit reports whether a sink that has not delivered everything delivers now. If not, waiting does not help.
func (e *Engine) DeliversAudit() bool {
	for _, p := range e.pipelines {
		events, _, _, _, _ := p.queue.SpillStats()
		if p.audit.backlog()+events > 0 && p.drain.Delivering() {
			return true
		}
	}
	return false
}

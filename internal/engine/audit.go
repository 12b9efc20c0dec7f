package engine

import (
	"context"
	"slices"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// newAuditReader returns the reader of a pipeline whose sink is sent audit events.
func (e *Engine) newAuditReader(p *pipeline) (*auditread.Reader, error) {
	return auditread.New(auditread.Options{
		Sink: p.Name, Journal: e.options.Journal, Tracker: e.tracker, Rules: p.Rules, Encoder: p.Encoder,
		Metrics: p.Metrics, QueueEvents: p.Buffer.Events, QueueBytes: p.Buffer.Bytes, Logger: p.Log,
		Delivering: func() bool { return p.Drain.Delivering() },
		Push:       func(ctx context.Context, m *event.Message) error { return p.push(ctx, m) },
	})
}

// commitAudit stores up to where audit events were delivered, and removes those from the journal that all sinks have.
// It is called once a second by one goroutine, and at the end.
func (e *Engine) commitAudit() {
	if len(e.readers) == 0 {
		return
	}
	if err := auditread.Commit(e.tracker, e.options.Journal, e.readers); err != nil {
		e.auditLog.Do(func() {
			e.options.Logger.Error("cannot note which audit events were delivered, retrying: they may be sent again after "+
				"a restart", "err", err)
		})
	}
}

// AnnounceAuditLoss sends a gap event to all sinks that are sent audit events, because another replica may have lost
// some. It returns true if all sinks have delivered it. Until then, the caller calls it again, with the same id. It can
// be called by one goroutine while Run runs.
func (e *Engine) AnnounceAuditLoss(id, why string) (delivered bool) {
	delivered = true
	for _, r := range e.readers {
		delivered = r.Announce(e.reading, id, why) && delivered
	}
	return delivered && !e.auditOnDisk()
}

// auditOnDisk reports whether events wait in the spill or in the parked events of a sink. The readers count them as
// settled, because a restart delivers them.
func (e *Engine) auditOnDisk() bool {
	return slices.ContainsFunc(e.pipelines, func(p *pipeline) bool {
		return p.SpilledEvents() > 0 || len(p.Drain.Parked.Queues()) > 0
	})
}

// AuditDelivered returns the number of the journal up to which the destinations of all sinks have everything. ok is
// false if that is not known, because events wait on disk outside the journal.
func (e *Engine) AuditDelivered() (upTo uint64, ok bool) {
	upTo = e.options.Journal.Status().Last
	for _, r := range e.readers {
		at := r.Settled()
		if at == (audit.Position{}) {
			return 0, false // it has not begun yet
		}
		upTo = min(upTo, at.Number)
	}
	return upTo, !e.auditOnDisk() // read last: what was spilled before is settled
}

// DeliversAudit reports whether a sink that has not delivered everything delivers now. If not, waiting does not help.
func (e *Engine) DeliversAudit() bool {
	return slices.ContainsFunc(e.pipelines, func(p *pipeline) bool {
		return p.audit.Backlog()+p.SpilledEvents() > 0 && p.Drain.Delivering()
	})
}

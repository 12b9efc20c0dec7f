package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

const (
	// auditShare is the share of a queue's memory that audit events in flight may use. It is so small that pushes do
	// not wait, and that nothing spills while the sink delivers.
	auditShare = 8
	// auditRead is how many bytes of events are read from the journal at once.
	auditRead = 1 << 20
	// auditPoll is the interval at which a reader looks whether its sink delivers again.
	auditPoll = 50 * time.Millisecond
	// auditRate is the name of the rate at which audit events arrive.
	auditRate = "audit"
	// auditRetry is the pause after a failed attempt to read the journal or to store a position.
	auditRetry = time.Second
)

// auditReader brings the audit events of the journal to one sink. While the sink does not deliver, it reads nothing, so
// that the events wait in the journal, and not in the sink's spill.
type auditReader struct {
	auditBooks

	p       *pipeline
	journal *audit.Journal
	filter  *filter.AuditFilter
	metrics *metrics.Resource
	reading context.Context //nolint:containedctx // Engine.reading
}

// newAuditReader returns the reader of a pipeline whose sink is sent audit events.
func (e *Engine) newAuditReader(p *pipeline) (*auditReader, error) {
	journal := e.options.Journal
	rules, mistakes := filter.CompileAudit(p.Rules, filter.Options{
		Logger: p.log, OnError: func(int, error) { p.metrics.FilterErrors.Inc() },
	})
	if len(mistakes) > 0 { // never happens, because the configuration was validated
		return nil, mistakes[0]
	}
	r := &auditReader{
		p: p, journal: journal, filter: rules, reading: e.reading,
		metrics: p.metrics.Resource(event.AuditResource().GroupResource()),
	}
	r.auditBooks = auditBooks{
		Tracker: p.tracker, sink: p.Name, journal: journal, progress: make(chan struct{}, 1),
		maxEvents: max(1, p.Buffer.Events/auditShare), maxBytes: max(1, p.Buffer.Bytes/auditShare),
	}
	return r, nil
}

// run brings events to the sink until ctx ends.
func (r *auditReader) run(ctx context.Context) {
	next, ok := r.begin(ctx)
	for ok {
		records, err := r.journal.Read(ctx, next, auditRead)
		switch {
		case ctx.Err() != nil || errors.Is(err, audit.ErrClosed):
			return
		case err != nil:
			r.p.log.Error("cannot read the audit journal, retrying", "err", err)
			ok = sleep(ctx, auditRetry)
		}
		for _, record := range records {
			if !r.bring(ctx, &record) {
				return
			}
			next = record.Last + 1
		}
	}
}

// begin returns the number of the first event to read. It stores it before anything is delivered. If events may be
// missing before it, this is announced first, and the position is stored when the gap event is settled. It returns
// false if ctx ends.
func (r *auditReader) begin(ctx context.Context) (next uint64, ok bool) {
	next, lost := r.journal.Resume(r.stored())
	if lost == nil {
		r.start(next - 1)
		for {
			err := storePositions(r.Tracker, r.journal, map[string]*auditReader{r.p.Name: r})
			if err == nil {
				return next, true
			}
			r.p.log.Error("cannot store up to where audit events were delivered, retrying", "err", err)
			if !sleep(ctx, auditRetry) {
				return 0, false
			}
		}
	}
	r.p.log.Error("audit events may be lost", "err", lost)
	return next, r.gap(ctx, next-1, 0, lost)
}

// bring brings a record of the journal to the sink, unless the filter does not let it pass. It waits until the sink
// delivers, and returns false if ctx ends first.
func (r *auditReader) bring(ctx context.Context, record *audit.Record) bool {
	if record.Err != nil {
		r.p.log.Error("audit events are lost", "from", record.First, "to", record.Last, "err", record.Err)
		return r.gap(ctx, record.Last, record.Lost, record.Err)
	}
	r.metrics.Received.Inc()
	ev := &record.Event
	info := &event.AuditInfo{ID: ev.ID(), Object: referenceOf(&ev.Object), Raw: ev.Raw}
	if !r.passes(info, nil) {
		r.metrics.Filtered.Inc()
		r.skip(record.Last)
		return true
	}
	now := time.Now()
	encoded := event.Event{Type: event.Audit, Time: ev.StageTime, Audit: info}
	if encoded.Time.IsZero() {
		encoded.Time = now
	}
	m, err := r.p.Encoder.Encode(encoded)
	m.Read, m.ClusterUID = now, r.p.books.KnownUID()
	switch {
	case err != nil:
		r.p.log.Error("cannot encode the audit event, so a gap event is sent in its place", "err", err)
		r.metrics.Rejected.Inc()
		r.metrics.NotSent.Add(1)
		m = event.RefusalGap(m, event.ReasonRefused, err.Error(), "")
	case !r.passes(info, m.Data):
		r.metrics.Filtered.Inc()
		r.skip(record.Last)
		return true
	}
	return r.push(ctx, m, record.Last)
}

func (r *auditReader) passes(info *event.AuditInfo, data []byte) bool {
	o := &info.Object
	return r.filter.Passes(o.Resource, o.Namespace, o.Name, data)
}

// gap announces that audit events are lost up to the number. events is how many, or 0 if it is not known.
func (r *auditReader) gap(ctx context.Context, upTo uint64, events int64, why error) bool {
	m := auditGap(r.p, events, why.Error())
	m.ID += "." + r.journal.ID() + "." + strconv.FormatUint(upTo, 10)
	return r.push(ctx, m, upTo)
}

// auditGap returns a gap event for a sink that is sent audit events.
func auditGap(p *pipeline, events int64, why string) *event.Message {
	info := &event.GapInfo{
		Resource: event.GroupResource(event.AuditResource()), Reason: event.ReasonDamaged, Events: events,
		Message: "audit events may be missing: " + why,
	}
	m, _ := p.Encoder.Encode(event.Event{ // gap events can always be encoded
		Type: event.Gap, Time: time.Now(), Resource: event.AuditResource(), GapInfo: info,
	})
	m.ClusterUID = p.books.KnownUID()
	return m
}

// push puts a message into the queue, when the sink delivers and not too much is in flight. When the message is
// settled, everything in the journal up to the number is. It returns false if ctx ends first.
func (r *auditReader) push(ctx context.Context, m *event.Message, number uint64) bool {
	for !r.p.drain.Delivering() || !r.hasRoom() {
		select {
		case <-ctx.Done():
			return false
		case <-r.progress:
		case <-time.After(auditPoll):
		}
	}
	m.Origin.Seq = r.track(number, m.Size())
	r.metrics.Queue(m)
	if err := r.p.push(ctx, m); err != nil { // only during shutdown; the journal still has the event
		r.metrics.Unqueue(m)
		return false
	}
	return true
}

func referenceOf(o *audit.ObjectReference) (ref redact.Reference) {
	ref.Resource.Group, ref.Resource.Version, ref.Resource.Resource = o.APIGroup, o.APIVersion, o.Resource
	ref.Subresource, ref.Namespace, ref.Name = o.Subresource, o.Namespace, o.Name
	return ref
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// auditReaders returns the readers of all sinks that are sent audit events, by sink.
func (e *Engine) auditReaders() map[string]*auditReader {
	readers := map[string]*auditReader{}
	for _, p := range e.pipelines {
		if p.audit != nil {
			readers[p.Name] = p.audit
		}
	}
	return readers
}

// commitAudit stores up to where audit events were delivered, and removes those from the journal that all sinks have.
// It is called once a second by one goroutine, and at the end.
func (e *Engine) commitAudit() {
	readers := e.auditReaders()
	if len(readers) == 0 && e.actors == nil {
		return
	}
	upTo := e.options.Journal.Status().Last
	var err error
	if e.actors != nil {
		upTo, err = e.actors.store()
	}
	if err == nil {
		err = storePositions(e.tracker, e.options.Journal, readers)
	}
	if err == nil {
		err = acknowledge(e.options.Journal, readers, upTo)
	}
	if err != nil {
		e.auditLog.Do(func() {
			e.options.Logger.Error("cannot note which audit events were delivered, retrying: they may be sent again after "+
				"a restart", "err", err)
		})
	}
}

// acknowledge removes the events up to a number from the journal, if all sinks have them, and have stored this.
func acknowledge(journal *audit.Journal, readers map[string]*auditReader, upTo uint64) error {
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

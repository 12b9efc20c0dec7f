package auditread

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

const (
	// share is the share of a queue's memory that audit events in flight may use. It is so small that pushes do not wait,
	// and that nothing spills while the sink delivers.
	share = 8
	// readBytes is how many bytes of events are read from the journal at once.
	readBytes = 1 << 20
	// poll is the interval at which a reader looks whether its sink delivers again.
	poll = 50 * time.Millisecond
	// retry is the pause after a failed attempt to read the journal or to store a position.
	retry = time.Second
)

// Options configures a [Reader].
type Options struct {
	Sink    string // its name
	Journal *audit.Journal
	Tracker *tracker.Tracker // stores the positions
	Rules   []filter.Rule
	Encoder *event.Encoder
	Metrics *metrics.Sink
	// QueueEvents and QueueBytes are the bounds of the sink's queue in memory.
	QueueEvents int
	QueueBytes  int64
	// Delivering reports whether the sink delivers.
	Delivering func() bool
	// Push puts a message into the sink's queue. When it is settled, Settle must be called.
	Push   func(context.Context, *event.Message) error
	Logger *slog.Logger
}

// Reader brings the audit events of a journal to one sink. While the sink does not deliver, it reads nothing, so that
// the events wait in the journal, and not in the sink's spill. It is safe for concurrent use.
type Reader struct {
	Options
	books

	filter        *filter.AuditFilter
	metrics       *metrics.Resource
	announcements announcements
}

// New returns the reader of a sink.
func New(o Options) (*Reader, error) {
	rules, mistakes := filter.CompileAudit(o.Rules, filter.Options{
		Logger: o.Logger, OnError: func(int, error) { o.Metrics.FilterErrors.Inc() },
	})
	if len(mistakes) > 0 { // never happens, because the configuration was validated
		return nil, mistakes[0]
	}
	return &Reader{
		Options: o, filter: rules, metrics: o.Metrics.Resource(event.AuditResource().GroupResource()),
		books: books{
			journal: o.Journal, settled: make(chan struct{}, 1),
			maxEvents: max(1, o.QueueEvents/share), maxBytes: max(1, o.QueueBytes/share),
		},
	}, nil
}

// Run brings events to the sink until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	next, ok := r.begin(ctx)
	for ok {
		records, err := r.Journal.Read(ctx, next, readBytes)
		switch {
		case ctx.Err() != nil || errors.Is(err, audit.ErrClosed):
			return
		case err != nil:
			r.Logger.Error("cannot read the audit journal, retrying", "err", err)
			ok = pause.For(ctx, retry)
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
func (r *Reader) begin(ctx context.Context) (next uint64, ok bool) {
	next, lost := r.Journal.Resume(r.stored())
	if lost == nil {
		r.start(next - 1)
		for {
			err := storePositions(r.Tracker, r.Journal, []*Reader{r})
			if err == nil {
				return next, true
			}
			r.Logger.Error("cannot store up to where audit events were delivered, retrying", "err", err)
			if !pause.For(ctx, retry) {
				return 0, false
			}
		}
	}
	r.Logger.Error("audit events may be lost", "err", lost)
	return next, r.gap(ctx, next-1, 0, lost)
}

// bring brings a record of the journal to the sink, unless the filter does not let it pass. It waits until the sink
// delivers, and returns false if ctx ends first.
func (r *Reader) bring(ctx context.Context, record *audit.Record) bool {
	if record.Err != nil {
		r.Logger.Error("audit events are lost", "from", record.First, "to", record.Last, "err", record.Err)
		return r.gap(ctx, record.Last, int64(record.Last-record.First+1), record.Err)
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
	m, err := r.Encoder.Encode(encoded)
	m.Read, m.ClusterUID = now, r.Tracker.KnownUID()
	switch {
	case err != nil:
		r.Logger.Error("cannot encode the audit event, so a gap event is sent in its place", "err", err)
		r.metrics.NotSent.Add(1)
		m = event.RefusalGap(m, event.ReasonRefused, err.Error(), "")
	case !r.passes(info, m.Data):
		r.metrics.Filtered.Inc()
		r.skip(record.Last)
		return true
	}
	return r.push(ctx, m, record.Last)
}

func (r *Reader) passes(info *event.AuditInfo, data []byte) bool {
	o := &info.Object
	return r.filter.Passes(o.Resource, o.Namespace, o.Name, data)
}

// gap announces that audit events are lost up to the number. events is how many, or 0 if it is not known.
func (r *Reader) gap(ctx context.Context, upTo uint64, events int64, why error) bool {
	m := r.Gap(events, why.Error())
	m.ID += "." + r.Journal.ID() + "." + strconv.FormatUint(upTo, 10)
	return r.push(ctx, m, upTo)
}

// Gap returns a gap event for the sink. events is how many audit events are lost, or 0 if it is not known.
func (r *Reader) Gap(events int64, why string) *event.Message {
	info := &event.GapInfo{
		Resource: event.GroupResource(event.AuditResource()), Reason: event.ReasonDamaged, Events: events,
		Message: "audit events may be missing: " + why,
	}
	m, _ := r.Encoder.Encode(event.Event{ // gap events can always be encoded
		Type: event.Gap, Time: time.Now(), Resource: event.AuditResource(), GapInfo: info,
	})
	m.ClusterUID = r.Tracker.KnownUID()
	return m
}

// push puts a message into the queue, when the sink delivers and not too much is in flight. When the message is
// settled, everything in the journal up to the number is. It returns false if ctx ends first.
func (r *Reader) push(ctx context.Context, m *event.Message, number uint64) bool {
	for !r.Delivering() || !r.hasRoom() {
		select {
		case <-ctx.Done():
			return false
		case <-r.settled:
		case <-time.After(poll):
		}
	}
	m.Origin.Seq = r.track(number, m.Size())
	return r.queue(ctx, m)
}

// queue returns false during shutdown. The journal still has the event then.
func (r *Reader) queue(ctx context.Context, m *event.Message) bool {
	r.metrics.Queue(m)
	if err := r.Push(ctx, m); err != nil {
		r.metrics.Unqueue(m)
		return false
	}
	return true
}

// Settle notes that a message of the sink is settled. Messages of an earlier process have no effect.
func (r *Reader) Settle(m *event.Message) {
	if m.Origin.Seq&announced != 0 {
		r.announcements.settle(m.Origin.Seq)
	} else {
		r.settle(m.Origin.Seq)
	}
}

func referenceOf(o *audit.ObjectReference) (ref redact.Reference) {
	ref.Resource.Group, ref.Resource.Version, ref.Resource.Resource = o.APIGroup, o.APIVersion, o.Resource
	ref.Subresource, ref.Namespace, ref.Name = o.Subresource, o.Namespace, o.Name
	return ref
}

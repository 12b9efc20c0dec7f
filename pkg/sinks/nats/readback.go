package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

const (
	// readPatience is how long attempts to read the stream back may fail while the connection works, in acknowledgement
	// timeouts.
	readPatience = 3
	// replicaLag is how long the reader waits for messages that its replica may not have received from the leader yet.
	replicaLag = time.Second
)

var (
	// errStalled means that the server has messages to read but does not deliver them.
	errStalled = errors.New("the server stopped delivering messages")
	// errLost means that messages that the server has delivered did not arrive. One cause is that this process stood
	// still: nats.go then requests more messages, and drops those for which it has no room.
	errLost = errors.New("messages were lost")
)

// progress is what the sink knows of the messages that it has written to one stream.
type progress struct {
	part  string // the identity of the stream; empty until a stream has been read back
	acked uint64 // the highest sequence that was acknowledged
	// doubtful contains, for each object with a message that was perhaps written, the highest sequence that was
	// acknowledged before that message was sent.
	doubtful map[event.Key]uint64
	unsure   bool // a message was perhaps written since the stream was read back
	// nothing reports whether the stream had no message after the position of the earlier process, and was sent none that
	// an earlier process has left on disk.
	nothing bool
	read    uint64    // the sequence up to which the stream was read back
	failing time.Time // since when the stream cannot be read; zero if it can
}

var _ sinks.Resumer = (*Sink)(nil)

// Resume implements [sinks.Resumer].
func (s *Sink) Resume(from sinks.Resume) {
	s.resume, s.headers.writer, s.latest.writer = &from, from.Writer, from.Writer
	if s.control != nil {
		s.control.Resume(from)
	}
}

// Positions implements [sinks.Resumer]. The parts are the streams.
func (s *Sink) Positions(parked []string) sinks.Positions {
	if s.control != nil {
		return s.bothPositions(parked)
	}
	return s.positions(parked)
}

func (s *Sink) positions(parked []string) sinks.Positions {
	s.found.Mark()
	if s.progress.part == "" || len(parked) > 0 {
		return nil
	}
	return sinks.Positions{s.progress.part: {Next: int64(s.progress.settled()) + 1}}
}

// Forget implements [sinks.Resumer].
func (s *Sink) Forget() {
	s.found.Forget()
	if s.control != nil {
		s.control.Forget()
	}
}

// FoundNothing implements [sinks.Resumer].
func (s *Sink) FoundNothing() bool {
	return s.progress.nothing && (s.control == nil || s.control.progress.part == "" || s.control.progress.nothing)
}

// Fenced implements [sinks.Resumer]. Only a latest-state stream has a fence: the expected sequences.
func (s *Sink) Fenced() bool { return s.headers.expects() && s.control == nil }

// settled returns the highest acknowledged sequence before all messages that were perhaps written.
func (p *progress) settled() uint64 {
	last := p.acked
	for _, before := range p.doubtful {
		last = min(last, before)
	}
	return last
}

// note records the results of a batch. before is the highest sequence that was acknowledged when the batch began.
func (p *progress) note(batch []*event.Message, results []error, before uint64) {
	for i, err := range results {
		switch {
		case batch[i].Type == event.Progress: // it is not sent again
		case err == nil, errors.Is(err, sinks.ErrStored), sinks.IsPermanent(err):
			if len(p.doubtful) > 0 {
				delete(p.doubtful, batch[i].Key())
			}
		case sinks.IsMaybeWritten(err):
			p.unsure = true
			key := batch[i].Key()
			if _, known := p.doubtful[key]; !known {
				if p.doubtful == nil {
					p.doubtful = make(map[event.Key]uint64)
				}
				p.doubtful[key] = before
			}
		}
	}
}

// readBack finds out what earlier processes wrote to the stream, and stores the position from which the next process
// must read. It does both once for each stream. It also finds out which messages of this process were written without
// an acknowledgement: after an outage, the stream may no longer know their ids.
func (s *Sink) readBack(ctx context.Context) error {
	p := &s.progress
	begun := p.part == s.destination
	if s.resume == nil || begun && (!p.unsure || s.headers.latest) { // a latest-state stream refuses repetitions
		return nil
	}
	last, err := s.end(ctx)
	switch {
	case err != nil:
		return err
	case !begun:
		return s.begin(ctx, last)
	}
	if err := s.read(ctx, max(p.settled(), p.read)+1, last); err != nil {
		return err
	}
	p.read, p.unsure = last, false
	return nil
}

// begin reads back a stream that is new to this process. last is the last sequence of the stream.
func (s *Sink) begin(ctx context.Context, last uint64) error {
	stored, known := s.resume.Positions[s.destination]
	next := uint64(stored.Next)
	switch {
	case known:
	case s.headers.latest, s.progress.part != "": // the process may have written before it noticed the new stream
		next = 1
	default:
		next = last + 1
	}
	next = min(next, last+1) // the stream has lost messages if its last sequence is lower
	s.found = sinks.Found{Writer: s.resume.Writer, Logger: s.cfg.Logger}
	s.latest.reset(next)
	if err := s.read(ctx, next, last); err != nil {
		return err
	}
	if from := (sinks.Position{Next: int64(next)}); from != stored {
		if err := s.resume.Store(sinks.Positions{s.destination: from}); err != nil {
			return fmt.Errorf("the position in stream %s was not stored: %w", s.cfg.Stream.Name, err)
		}
	}
	s.progress = progress{part: s.destination, acked: next - 1, read: last, nothing: next > last}
	return nil
}

// read records the messages that earlier processes stored in the sequences from next to last. It also returns nil if
// the stream cannot be read back.
func (s *Sink) read(ctx context.Context, next, last uint64) error {
	if next > last {
		return nil
	}
	do := func(ctx context.Context) error { return s.readHeaders(ctx, next, last) }
	return s.tryToRead(ctx, natscheck.OnlyWindow, do, s.client.API()+".CONSUMER.")
}

// tryToRead calls do, which sends requests about the stream, and requests whose subjects begin with prefix. If the
// stream cannot be read back, tryToRead logs the effect, and returns nil.
func (s *Sink) tryToRead(ctx context.Context, effect string, do func(context.Context) error, prefix string) error {
	err, final := errors.New("its retention is by consumption"), true
	if s.info.Config.Retention == jetstream.LimitsPolicy {
		err = s.client.AskOptional(ctx, do, s.client.API()+".STREAM.", prefix)
		final = s.cannotRead(err)
	} else {
		effect = natscheck.OnlyWindow
	}
	switch {
	case err == nil:
	case ctx.Err() != nil || !final:
		return s.stream.Error(fmt.Errorf("read back: %w", err))
	case !s.headers.latest: // a latest-state stream refuses repetitions even if it is not read back
		s.warn(effect, err)
	}
	return nil
}

// cannotRead reports whether err means that the stream cannot be read back, although the connection works: because of a
// permission or limit, or because no attempt has succeeded for some time. One cause is an export of the JetStream API
// to another account that lacks a subject, or that permits only one response to a request.
func (s *Sink) cannotRead(err error) bool {
	p := &s.progress
	switch {
	case err == nil:
		return false
	case errors.Is(err, jetstream.ErrStreamNotFound), len(s.client.Lost) > 0:
		p.failing = time.Time{}
		return false
	case errors.Is(err, natsgo.ErrPermissionViolation), natscheck.IsAnswer(err):
		return true
	case p.failing.IsZero():
		p.failing = time.Now()
	}
	return time.Since(p.failing) >= readPatience*s.cfg.AckTimeout
}

// readHeaders records the messages in the sequences from next to last. If messages were lost, it continues with a new
// consumer, as long as each consumer delivers a good number: an export that permits one response to a request delivers
// one.
func (s *Sink) readHeaders(ctx context.Context, next, last uint64) error {
	const goodNumber = 100
	start, from, total := time.Now(), next, uint64(0)
	for {
		at, read, err := s.readFrom(ctx, next, last)
		total += read
		switch {
		case errors.Is(err, errLost) && read >= goodNumber:
			next = at + 1
			continue
		case err != nil:
			return err
		}
		s.progress.failing = time.Time{}
		s.cfg.Logger.Info("read the stream back", "stream", s.cfg.Stream.Name, "from", from, "messages", total,
			"took", time.Since(start).Round(time.Millisecond))
		return nil
	}
}

// readFrom is readHeaders with a single consumer. It returns the last sequence that was read, and how many messages
// were.
func (s *Sink) readFrom(ctx context.Context, next, last uint64) (at, read uint64, err error) {
	// An ordered consumer of nats.go is similar, but it recovers by itself, even after ctx has ended.
	consumer, err := s.client.JetStream().CreateConsumer(ctx, s.cfg.Stream.Name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next, FilterSubjects: s.readFilter(),
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1,
	}) // the server removes it after five seconds without a reader
	if err != nil {
		return 0, 0, err
	}
	messages, err := consumer.Messages(natscheck.RepeatPull()...)
	if err != nil {
		return 0, 0, err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	// The consumer may be on a replica that does not have the last messages yet.
	replicated := s.info.Config.Replicas > 1
	at = next - 1
	for pending := consumer.CachedInfo().NumPending; at < last && (pending > 0 || replicated); read++ {
		wait := s.cfg.AckTimeout
		if pending == 0 {
			wait = replicaLag
		}
		m, err := messages.Next(jetstream.NextMaxWait(wait))
		if errors.Is(err, natsgo.ErrTimeout) {
			return at, read, s.isRead(ctx, consumer, read, last)
		}
		if err != nil {
			return at, read, cmp.Or(ctx.Err(), err)
		}
		meta, err := m.Metadata()
		if err == nil && meta.Sequence.Consumer != read+1 {
			err = errLost
		}
		if err != nil {
			return at, read, err
		}
		at, pending = meta.Sequence.Stream, meta.NumPending
		if s.headers.latest {
			s.latest.note(m.Subject(), at, foundRecord(m.Headers()))
		} else {
			r := foundRecord(m.Headers())
			r.Place = m.Subject()
			s.found.Note(r)
		}
	}
	return at, read, nil
}

// isRead returns nil if the consumer has no more messages up to last, and has delivered no more than were read. The
// number of pending messages that came with the last message can be too high, because messages expire and are deleted.
func (s *Sink) isRead(ctx context.Context, consumer jetstream.Consumer, read, last uint64) error {
	stream, err := s.lookUp(ctx) // before the consumer's state, which then contains what its replica has by now
	if err != nil {
		return err
	}
	info, err := consumer.Info(ctx)
	switch {
	case err != nil:
		return err
	case info.Delivered.Consumer > read:
		return errLost
	case info.NumPending > 0, mayLack(stream.CachedInfo(), info, last):
		return errStalled
	}
	return nil
}

// mayLack reports whether the replica that the consumer is on may not have received all messages up to last.
func mayLack(stream *jetstream.StreamInfo, consumer *jetstream.ConsumerInfo, last uint64) bool {
	return stream.Cluster != nil && consumer.Cluster != nil &&
		slices.ContainsFunc(stream.Cluster.Replicas, func(r *jetstream.PeerInfo) bool {
			return r.Name == consumer.Cluster.Leader && r.Lag > 0 && last+r.Lag > stream.State.LastSeq
		})
}

// readFilter returns the filter of the consumer that reads the stream back. A consumer without a filter is faster,
// unless the stream has many messages that are not from this sink.
func (s *Sink) readFilter() []string {
	c, own := &s.info.Config, []string{s.stream.Wildcard}
	if c.SubjectTransform != nil || slices.Equal(c.Subjects, own) || !natscheck.Covers(c.Subjects, s.stream.Wildcard) {
		return nil
	}
	return own
}

// warn logs the effect of the error of a request to read messages, once for each effect.
func (s *Sink) warn(effect string, err error) {
	if !s.warned[effect] {
		s.warned[effect] = true
		s.cfg.Logger.Warn("cannot read the stream", "effect", effect, "stream", s.cfg.Stream.Name, "err", err)
	}
}

// foundRecord returns what the headers of a message say about its event.
func foundRecord(h natsgo.Header) sinks.FoundRecord {
	r := sinks.FoundRecord{Mark: h.Get(sinks.MarkHeader)}
	for header := range h {
		if name, ok := strings.CutPrefix(header, attributePrefix); ok && sinks.Identifies(name) {
			r.Set(name, natscheck.Decode(h.Get(header)))
		}
	}
	return r
}

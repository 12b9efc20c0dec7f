package nats

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsack"
)

// maxSubject is the maximum length of a subject in bytes. If a protocol line is too long (max_control_line, 4096 by
// default), the server closes the connection. The bridge would then re-send the message forever.
const maxSubject = 2048

// errNotSent is the error of messages that were ready to be sent when the batch was given up.
var errNotSent = errors.New("not sent")

// flight is a batch that is being sent. Only the goroutine of Send uses it, alternately to publish messages and to read
// answers. Therefore it needs no lock.
//
// The messages of one object form a chain. The first message of the chain is ready immediately. Each later message
// becomes ready when the message before it is acknowledged.
type flight struct {
	batch   []*event.Message
	results []error
	status  []status
	next    []int32 // next[i] is the message after batch[i] in its chain; -1 if there is none
	ready   []int32 // ready[readyAt:] are the messages that may be published now
	readyAt int
	base    uint64              // base+i is the reply token of batch[i]
	flying  int                 // number of published messages without a result
	open    int                 // number of messages without a result
	last    map[event.Key]int32 // the last message per key so far
	before  uint64              // the highest sequence that was acknowledged when the batch began

	expected []expected // only for latest-state streams
}

// expected contains what the sink knows of the message that a message replaces.
type expected struct {
	hash     uint64 // of the subject
	sequence uint64 // from the last refusal
	refusals int
}

type status uint8

const (
	waiting status = iota
	flying
	asking // the last message of the subject is being looked up; counts as flying
	done
)

func (f *flight) begin(batch []*event.Message, results []error) {
	n := len(batch)
	f.base += uint64(len(f.status)) // tokens are never reused, so a late answer is never assigned to another message
	f.batch, f.results, f.open, f.flying = batch, results, n, 0
	f.status = append(f.status[:0], make([]status, n)...)
	f.next = append(f.next[:0], make([]int32, n)...)
	f.expected = append(f.expected[:0], make([]expected, n)...)
	f.ready, f.readyAt = f.ready[:0], 0
	if f.last == nil {
		f.last = make(map[event.Key]int32, n)
	}
	for i, m := range batch {
		f.next[i] = -1
		key := m.Key()
		if before, ok := f.last[key]; ok {
			f.next[before] = int32(i)
		} else {
			f.ready = append(f.ready, int32(i))
		}
		f.last[key] = int32(i)
	}
}

func (f *flight) end() {
	clear(f.last)
	f.batch, f.results = nil, nil
}

// settle sets the result of message i. If err is not nil, settle also sets the results of all later messages of the
// same object.
func (f *flight) settle(i int32, err error) {
	if f.status[i] == flying || f.status[i] == asking {
		f.flying--
	}
	f.status[i] = done
	f.results[i] = err
	f.open--
	next := f.next[i]
	if err == nil || errors.Is(err, sinks.ErrStored) {
		if next >= 0 {
			f.ready = append(f.ready, next)
		}
		return
	}
	for ; next >= 0; next = f.next[next] {
		f.status[next], f.results[next] = done, sinks.ErrNotAttempted
		f.open--
	}
}

// again makes message i ready again.
func (f *flight) again(i int32) {
	f.flying--
	f.status[i] = waiting
	f.ready = append(f.ready, i)
}

// giveUp sets all missing results. Flying messages may have been written. Ready messages were not sent. All other
// messages were not attempted.
func (f *flight) giveUp(err error) {
	for _, i := range f.ready[f.readyAt:] {
		f.status[i], f.results[i] = done, fmt.Errorf("%w: %w", errNotSent, err)
	}
	for i, s := range f.status {
		switch s {
		case flying:
			f.results[i] = sinks.MaybeWritten(err)
		case asking:
			f.results[i] = fmt.Errorf("%w: %w", errNotSent, err)
		case waiting:
			f.results[i] = sinks.ErrNotAttempted
		}
		f.status[i] = done
	}
	f.open, f.flying, f.readyAt = 0, 0, len(f.ready)
}

// Send implements sinks.Sink.
func (s *Sink) Send(ctx context.Context, batch []*event.Message, results []error) {
	switch {
	case sinks.IsProgress(batch):
		s.sendProgress(ctx, batch, results)
	case slices.ContainsFunc(batch, s.isApart):
		s.sendApart(ctx, batch, results)
	default:
		s.send(ctx, batch, results)
	}
}

// errNewStream means that the stream does not have the events that were sent before.
var errNewStream = errors.New("the stream was created again")

// sendProgress sends progress events, after it has checked that the stream of the objects is the one to which earlier
// events were sent.
func (s *Sink) sendProgress(ctx context.Context, batch []*event.Message, results []error) {
	before := s.destination
	s.recheck = true
	err := s.prepare(ctx)
	if err == nil && s.destination != before {
		err = errNewStream
	}
	switch {
	case err != nil:
		results[0] = err
	case s.control == nil:
		s.send(ctx, batch, results)
	default:
		// The stream can have events that were not acknowledged but found.
		end := max(s.info.State.LastSeq, s.progress.acked, s.progress.read)
		apart := make([]*event.Message, len(batch))
		for i, m := range batch {
			apart[i] = event.Apart(m, &event.Position{Stream: s.cfg.Stream.Name, Sequence: end + 1})
		}
		s.control.send(ctx, apart, results)
	}
}

func (s *Sink) send(ctx context.Context, batch []*event.Message, results []error) {
	f := &s.flight
	f.begin(batch, results)
	defer f.end()
	defer func() {
		s.progress.note(batch, results, f.before)
		s.recheck = s.recheck || s.progress.unsure && s.resume != nil && !s.headers.latest
	}()
	// If the server does not read, a publish can block in the socket while nats.go holds its lock.
	defer s.client.EndWith(ctx)()
	if err := s.prepare(ctx); err != nil {
		f.giveUp(err)
		return
	}
	f.before = s.progress.acked
	silence := time.NewTicker(s.cfg.AckTimeout)
	defer silence.Stop()
	quiet := false // reports whether no answer has arrived since the last tick
	for f.open > 0 {
		s.fill(ctx)
		if f.open == 0 {
			break
		}
		select {
		case m := <-s.acks:
			quiet = false
			s.answer(m)
			for n := len(s.acks); n > 0; n-- {
				s.answer(<-s.acks)
			}
		case subject := <-s.client.Forbidden:
			quiet = false
			s.forbid(subject)
		case err := <-s.client.Lost:
			f.giveUp(fmt.Errorf("connection lost: %w", err))
		case <-silence.C:
			if quiet {
				s.silent()
			}
			quiet = true
		case <-ctx.Done():
			f.giveUp(ctx.Err())
		}
	}
}

// fill publishes ready messages until MaxInFlight messages are flying.
func (s *Sink) fill(ctx context.Context) {
	f := &s.flight
	for f.flying < s.cfg.MaxInFlight && f.readyAt < len(f.ready) {
		if ctx.Err() != nil {
			return
		}
		i := f.ready[f.readyAt]
		f.readyAt++
		f.status[i] = flying
		f.flying++
		if err := s.publish(i); err != nil {
			f.settle(i, err)
			if !sinks.IsPermanent(err) && !errors.Is(err, sinks.ErrStored) {
				// The connection failed, so all other messages would fail too.
				f.giveUp(fmt.Errorf("connection lost: %w", err))
			}
		}
	}
}

func (s *Sink) publish(i int32) error {
	f := &s.flight
	m := f.batch[i]
	text, err := s.appendSubject(append(s.text[:0], s.route...), m)
	if err != nil {
		return err
	}
	subject := len(text)
	s.text = strconv.AppendUint(append(text, s.inbox...), f.base+uint64(i), 36)
	both := string(s.text) // a single allocation for both strings
	before, err := s.stored(i, both[len(s.route):subject])
	if err != nil {
		return err
	}
	s.msg = natsgo.Msg{Subject: both[:subject], Reply: both[subject:], Header: s.headers.set(m, before), Data: m.Data}
	if m.Structured {
		s.body = m.AppendStructured(s.body[:0])
		s.msg.Data = s.body
	}
	err = s.answered.PublishMsg(&s.msg) // PublishMsg copies the whole message
	s.msg.Data = nil
	if err != nil {
		return natsack.PublishError(err)
	}
	return nil
}

// stored returns [sinks.ErrStored] if the stream has message i or a newer one. Otherwise it returns the sequence that
// the last message of the subject is expected to have in a latest-state stream.
func (s *Sink) stored(i int32, subject string) (before uint64, err error) {
	f := &s.flight
	switch {
	case s.headers.expects():
		f.expected[i].hash = maphash.String(s.latest.seed, subject)
		return s.latest.expect(f.expected[i].hash, subject, f.batch[i])
	case s.found.Has(f.batch[i], subject):
		return 0, sinks.ErrStored
	}
	return 0, nil
}

// appendSubject appends the subject of m to dst. Any error is Permanent.
func (s *Sink) appendSubject(dst []byte, m *event.Message) ([]byte, error) {
	dst = s.subject.Append(dst, m)
	if len(dst) > maxSubject {
		return nil, sinks.Permanent(fmt.Errorf("%w: subject of %d bytes", sinks.ErrOversize, len(dst)))
	}
	return dst, nil
}

// answer settles the message that m is the answer to, if that message is still flying.
func (s *Sink) answer(m *natsgo.Msg) {
	f := &s.flight
	token, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.inbox), 36, 64)
	i := int32(token - f.base)
	if err != nil || token < f.base || token >= f.base+uint64(len(f.batch)) {
		return // a late answer to a message that was given up
	}
	switch f.status[i] {
	case asking:
		s.lookedUp(i, m)
		return
	case waiting, done:
		return // as above
	}
	a := s.answers.Read(m)
	switch {
	case a.Foreign: // for example, a stream of the leaf node with the same name and subjects
		return
	case a.Refused && s.headers.expects():
		s.refused(i, &a)
		return
	case a.Err == nil:
		s.acknowledged(i, &a)
	}
	s.partError(f.batch[i], &a)
	s.recheck = s.recheck || a.Recheck
	f.settle(i, a.Err)
}

// isLeft reports whether an earlier process may have left m on disk: see [sinks.Found.Sent].
func (s *Sink) isLeft(m *event.Message) bool { return s.resume != nil && m.Origin.Left }

// acknowledged records the sequence of message i.
func (s *Sink) acknowledged(i int32, a *natsack.Ack) {
	f := &s.flight
	s.progress.nothing = s.progress.nothing && !s.isLeft(f.batch[i])
	switch m := f.batch[i]; {
	case s.headers.expects() && s.isLeft(m):
		s.latest.note(s.subject.Expand(m), a.Sequence, sinks.RecordOf(s.latest.writer, m))
	case s.headers.expects():
		s.latest.replaceable(f.expected[i].hash, a.Sequence)
	case s.isLeft(m):
		s.found.Sent(m, "", s.subject.Expand(m))
	}
	if a.Sequence <= f.before && !a.Duplicate { // the stream was created again, or has lost messages
		f.before, s.recheck = a.Sequence-1, true
		s.progress.acked, s.progress.read = a.Sequence, min(s.progress.read, f.before)
	}
	s.progress.acked = max(s.progress.acked, a.Sequence)
}

package nats

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsack"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

const (
	// maxSequences is the maximum number of subjects of which a latest knows only the last sequence. It uses about 20
	// bytes for each.
	maxSequences = 1 << 20
	// maxRecords is the maximum number of subjects of which a latest knows the last message. It uses about 300 bytes
	// for each.
	maxRecords = 1 << 16
	// maxRefusals is the maximum number of refusals of one message before it is tried again later.
	maxRefusals = 16
)

// latest contains what the sink knows of the last message of each subject of a latest-state stream. If an entry is
// missing or wrong, the stream refuses a message, and the last message of its subject is looked up.
type latest struct {
	writer string
	seed   maphash.Seed
	recent uint64 // all messages before this sequence are older than all messages that the sink is going to send
	// A subject is in at most one of the maps, by its hash. If two subjects have the same hash, the stream refuses the
	// messages of one of them, because a sequence belongs to one subject only.
	sequences map[uint64]uint64
	records   map[uint64]lastRecord
}

// lastRecord is the last message of a subject, if a process with the same writer has sent it. That process may be ahead
// of this one, so only a newer message may replace it.
type lastRecord struct {
	sinks.FoundRecord

	subject  string
	sequence uint64
}

// reset forgets everything, and sets recent.
func (l *latest) reset(recent uint64) {
	l.seed, l.recent = maphash.MakeSeed(), recent
	l.sequences, l.records = make(map[uint64]uint64), make(map[uint64]lastRecord)
}

// replaceable records the last message of a subject, which any message that the sink sends may replace.
func (l *latest) replaceable(hash, sequence uint64) {
	delete(l.records, hash)
	if _, known := l.sequences[hash]; !known {
		makeRoom(l.sequences, maxSequences)
	}
	l.sequences[hash] = sequence
}

// note records the last message of a subject. If that message is recent and from a process with the same writer, the
// sink compares its own message with it before it replaces it.
func (l *latest) note(subject string, sequence uint64, r sinks.FoundRecord) {
	hash := maphash.String(l.seed, subject)
	if writer, _, _ := strings.Cut(r.Mark, " "); writer != l.writer || sequence < l.recent {
		l.replaceable(hash, sequence)
		return
	}
	delete(l.sequences, hash)
	makeRoom(l.records, maxRecords)
	l.records[hash] = lastRecord{r, subject, sequence}
}

// makeRoom removes an entry if a map has reached its limit.
func makeRoom[V any](m map[uint64]V, limit int) {
	for key := range m {
		if len(m) >= limit {
			delete(m, key)
		}
		return
	}
}

// expect returns the sequence that the last message of a subject is expected to have. It returns [sinks.ErrStored] if
// m must not replace that message, because it is the same event or a newer one.
func (l *latest) expect(hash uint64, subject string, m *event.Message) (sequence uint64, err error) {
	r, compare := l.records[hash]
	sequence, known := l.sequences[hash]
	switch {
	case compare && r.subject == subject && l.covers(r.FoundRecord, m):
		return 0, sinks.ErrStored
	case compare:
		return r.sequence, nil
	case !m.IfFound:
		return sequence, nil // if the sequence is wrong, the stream refuses m, and the last message is looked up
	case known:
		return 0, sinks.ErrStored
	}
	return math.MaxInt64, nil // no message has this sequence, so the last message is looked up in any case
}

// covers reports whether a record is that of the event or of a newer event of the same subject. A message that is
// repeated on purpose is new unless the object has changed since. A message of another history of etcd is always new: a
// resource that is watched again, or a restored checkpoint, begins without a history although etcd was restored before.
func (l *latest) covers(r sinks.FoundRecord, m *event.Message) bool {
	c := *m
	c.Origin.Left = true // this process may have started before the process that sent the record
	if r.UID != "" && !m.Type.IsControl() && r.Version != m.Identity.ResourceVersion {
		c.Delivery = ""
		if uid := string(m.Identity.UID); uid != r.UID { // another object had the name; the order of versions decides
			c.ID, r.UID = uid, uid
			c.FinalStateUnknown, c.LeftFilter = false, false
		}
	}
	found := sinks.Found{Writer: l.writer}
	found.Note(r)
	return found.Has(&c, "")
}

// refused handles the answer that message i was not stored, because its subject has another last message than was
// expected.
func (s *Sink) refused(i int32, a *natsack.Ack) {
	f, e := &s.flight, &s.flight.expected[i]
	e.refusals, e.sequence = e.refusals+1, a.Sequence
	switch {
	case e.refusals > maxRefusals:
		f.settle(i, fmt.Errorf("not stored, because others write to the same subject: %w", a.Err))
	case a.Numbered && (a.Sequence < s.latest.recent || s.lastWins):
		s.latest.replaceable(e.hash, a.Sequence)
		f.again(i)
	case a.Numbered:
		s.lookUpLast(i, server.JSApiMsgGetRequest{Seq: a.Sequence})
	default:
		s.lookUpLast(i, server.JSApiMsgGetRequest{LastFor: s.subject.Expand(f.batch[i])})
	}
}

// lookUpSubject returns the subject of requests for messages. The stream's leader answers them.
func (s *Sink) lookUpSubject() string { return s.client.API() + ".STREAM.MSG.GET." + s.cfg.Stream.Name }

// lookUpLast requests the last message of the subject of message i.
func (s *Sink) lookUpLast(i int32, request server.JSApiMsgGetRequest) {
	f := &s.flight
	f.status[i] = asking
	reply := s.inbox + strconv.FormatUint(f.base+uint64(i), 36)
	data, err := json.Marshal(request)
	if err == nil {
		err = s.answered.PublishRequest(s.lookUpSubject(), reply, data)
	}
	if err != nil {
		f.settle(i, fmt.Errorf("not sent: %w", err))
	}
}

// lookedUp handles the answer to lookUpLast.
func (s *Sink) lookedUp(i int32, m *natsgo.Msg) {
	f, e := &s.flight, &s.flight.expected[i]
	var answer struct { // the payload is not needed
		Type    string              `json:"type"`
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
			Headers  []byte `json:"hdrs"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503": // an import from another account can lack the subject
		s.stopLookingUp(natsack.ErrNoResponders)
	case err != nil || answer.Type != server.JSApiMsgGetResponseType:
		// It is a late answer of another stream to the message itself.
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.ErrorCode(server.JSNoMessageFoundErr):
		s.progress.failing = time.Time{}
		s.latest.replaceable(e.hash, e.sequence) // the message is gone, but the stream may still expect its sequence
		f.again(i)
	case answer.Error != nil:
		f.settle(i, natsack.Rejection(answer.Error).Err)
	default:
		s.progress.failing = time.Time{}
		subject := s.subject.Expand(f.batch[i])
		if answer.Message.Subject != subject && s.info.Config.SubjectTransform == nil {
			// The number is from another stream, for example one of the leaf node with the same name and subjects.
			s.lookUpLast(i, server.JSApiMsgGetRequest{LastFor: subject})
			return
		}
		headers, _ := natsgo.DecodeHeadersMsg(answer.Message.Headers) // without headers, the bridge has not sent it
		s.latest.note(subject, answer.Message.Sequence, foundRecord(headers))
		f.again(i)
	}
}

// stopLookingUp continues without looking up messages until the next check of the stream.
func (s *Sink) stopLookingUp(err error) {
	s.warn(natscheck.LastWins, err)
	s.lastWins = true
	f := &s.flight
	for i, status := range f.status {
		if status == asking {
			s.latest.replaceable(f.expected[i].hash, f.expected[i].sequence)
			f.again(int32(i))
		}
	}
}

package nats

import (
	"crypto/rand"
	"strconv"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
)

const (
	// contentType is written in lower case, as the CloudEvents SDKs write and look for it: nats.go compares
	// header names with their case.
	contentType     = "content-type"
	attributePrefix = "ce-"
)

// headers builds the headers of one message after the other in one map. The messages of a sink have nearly the same
// header names, so mostly only values are replaced. The map can be reused because nats.go copies the headers when it
// publishes.
type headers struct {
	header natsgo.Header
	slots  map[string]*slot // by name without prefix
	round  uint64           // counts messages; a slot's 0 means never
	used   []*slot          // of this round, in their order; before that, those of the last one
	n      int              // how many of used are of this round

	bucket bool   // it is a key-value bucket
	latest bool   // it is a latest-state stream: it keeps the last message of each subject
	ttl    string // of deletions; empty: they have none
	run    string // for ownID: no other process has it

	suffix string // of each Nats-Msg-Id
}

// slot is a header that some message had.
type slot struct {
	attribute string   // its name without prefix
	name      string   // as on the wire
	text      string   // what value is the encoded form of
	value     []string // of length 1: what header holds under name
	round     uint64   // of the last message that had it
}

func newHeaders(cfg *Config) *headers {
	stream := &cfg.Stream
	h := &headers{
		header: make(natsgo.Header), slots: make(map[string]*slot), round: 1, run: rand.Text()[:8],
		bucket: cfg.Bucket != "", latest: stream.LastPerSubject,
	}
	h.header[jetstream.ExpectedStreamHeader] = []string{stream.Name}
	if cfg.LettersOf != "" {
		h.suffix = ".letter." + cfg.LettersOf
	}
	return h
}

// set returns the headers of m. They are valid until the next call.
func (h *headers) set(m *event.Message) natsgo.Header {
	h.round++
	h.n = 0
	id := m.UniqueID()
	if h.latest || m.Again || m.Type == event.Restated {
		id = h.ownID(m)
	}
	if h.suffix != "" {
		id += h.suffix
	}
	h.put("", jetstream.MsgIDHeader, id)
	if h.latest && m.Type == event.Deleted {
		h.putDeletion()
	}
	if m.Structured {
		h.put("", contentType, m.ContentType())
	} else {
		m.Attributes(func(name, value string) bool {
			h.put(attributePrefix, name, value)
			return true
		})
	}
	h.used = h.used[:h.n]
	if len(h.header) > h.n+1 { // one more is the expected stream's
		for _, s := range h.slots {
			if s.round != h.round {
				delete(h.header, s.name)
			}
		}
	}
	return h.header
}

// ownID returns a Nats-Msg-Id that only this process uses, so that the server drops only repetitions of this process.
// It is used for messages that must be stored although the stream has the event already:
//   - A restated event has the id of the state that it repeats.
//   - In a latest-state stream the last message must have the last state. With the ids of events, after a crash that
//     repeats two states, the server could store the older one, whose id it has forgotten, and drop the newer one.
func (h *headers) ownID(m *event.Message) string {
	return m.UniqueID() + "." + h.run + "." + strconv.FormatInt(m.Time.UnixNano(), 36)
}

// putDeletion adds the headers of a deletion: its TTL, and for clients of a bucket the operation.
func (h *headers) putDeletion() {
	if h.ttl != "" {
		h.put("", jetstream.MsgTTLHeader, h.ttl)
	}
	if h.bucket {
		h.put("", bucketOperation, "DEL")
	}
}

// bucketOperation is the header by which clients of a bucket know that a key was deleted (NATS ADR-8).
const bucketOperation = "KV-Operation"

// deletionTTL returns the TTL of deletions; empty if they stay.
func (s *StreamConfig) deletionTTL() string {
	if !s.LastPerSubject || s.DeletionsKeptFor == 0 {
		return ""
	}
	return s.DeletionsKeptFor.String()
}

func (h *headers) put(prefix, name, value string) {
	s := h.slot(prefix, name)
	if s.round+1 != h.round { // the message before did not have it
		h.header[s.name] = s.value
	}
	if s.round = h.round; s.text != value { // nearly all messages have half of their values in common
		s.text = value
		if prefix != "" {
			value = encode(value)
		}
		s.value[0] = value
	}
}

// slot returns the slot of a name: mostly the slot that the previous message had at the same place.
func (h *headers) slot(prefix, name string) *slot {
	if h.n < len(h.used) && h.used[h.n].attribute == name {
		h.n++
		return h.used[h.n-1]
	}
	s := h.slots[name]
	if s == nil {
		s = &slot{attribute: name, name: prefix + name, value: make([]string, 1)}
		h.slots[name] = s
	}
	h.used = append(h.used[:h.n], s)
	h.n++
	return s
}

// encode percent-encodes an attribute's value as section 3.1.3.2 of the NATS protocol binding asks: space, double
// quote, percent, and whatever is not printable ASCII. Most values need none of it.
func encode(value string) string {
	for i := range len(value) {
		if mustEncode(value[i]) {
			return encodeFrom(value, i)
		}
	}
	return value
}

func encodeFrom(value string, from int) string {
	const digits = "0123456789ABCDEF"
	out := append(make([]byte, 0, len(value)+16), value[:from]...)
	for i := from; i < len(value); i++ {
		if c := value[i]; mustEncode(c) {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

func mustEncode(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

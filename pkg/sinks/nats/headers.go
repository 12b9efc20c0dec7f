package nats

import (
	"fmt"
	"strconv"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	// contentType is in lower case because the CloudEvents SDKs write and read it in lower case, and nats.go compares
	// header names case-sensitively.
	contentType     = "content-type"
	attributePrefix = "ce-"
)

// headers builds the headers of all messages in one map. The messages of a sink have nearly the same header names, so
// usually only values change. The map can be reused because nats.go copies the headers when it publishes.
type headers struct {
	header natsgo.Header
	slots  map[string]*slot // by header name without prefix
	round  uint64           // number of the current message; slot.round is 0 for a slot that was never used
	used   []*slot          // slots of the current message, in order; from n on, slots of the previous message
	n      int              // number of slots in used that belong to the current message

	bucket bool   // the destination is a key-value bucket
	latest bool   // the destination is a latest-state stream, which keeps only the last message of each subject
	ttl    string // TTL of deletions; empty if they have no TTL
	writer string // see sinks.Resume; empty if messages are not marked
	marks  sinks.Marks

	suffix  string // added to every Nats-Msg-Id
	encoder *strings.Replacer
}

// slot is a header that at least one message had.
type slot struct {
	attribute string   // header name without prefix
	name      string   // complete header name
	text      string   // value before encoding
	value     []string // encoded value; the slice of length 1 that header contains under name
	round     uint64   // number of the last message that had this header
}

func newHeaders(cfg *Config) *headers {
	stream := &cfg.Stream
	h := &headers{
		header: make(natsgo.Header), slots: make(map[string]*slot), round: 1,
		bucket: cfg.Bucket != "", latest: stream.LastPerSubject, encoder: newEncoder(),
	}
	h.header[jetstream.ExpectedStreamHeader] = []string{stream.Name}
	if cfg.LettersOf != "" {
		h.suffix = ".letter." + cfg.LettersOf
	}
	return h
}

// set fills h with the headers of m and returns them. They are valid until the next call.
// before is the sequence that the last message of the subject must have; it is used only if expects returns true.
func (h *headers) set(m *event.Message, before uint64) natsgo.Header {
	h.round++
	h.n = 0
	if h.expects() {
		h.put("", jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(before, 10))
	} else {
		h.put("", jetstream.MsgIDHeader, h.messageID(m))
	}
	if mark := h.marks.Of(h.writer, m); mark != "" {
		h.put("", sinks.MarkHeader, mark)
	}
	if h.latest && m.Type == event.Deleted {
		if h.ttl != "" {
			h.put("", jetstream.MsgTTLHeader, h.ttl)
		}
		if h.bucket {
			h.put("", bucketOperation, "DEL")
		}
	}
	if m.Structured {
		h.put("", contentType, m.ContentType())
	}
	m.Headers(func(name, value string) bool {
		if !m.Structured || h.writer != "" && sinks.Identifies(name) {
			h.put(attributePrefix, name, value)
		}
		return true
	})
	h.used = h.used[:h.n]
	if len(h.header) > h.n+1 { // the additional header is Nats-Expected-Stream
		for _, s := range h.slots {
			if s.round != h.round {
				delete(h.header, s.name)
			}
		}
	}
	return h.header
}

// expects reports whether a message names the sequence that the last message of its subject must have. It then has no
// Nats-Msg-Id: on a stream with one replica, the server would refuse the repetition of a message that it has stored,
// and 2.11 would refuse other attempts too.
func (h *headers) expects() bool {
	return h.latest && h.writer != "" && !mutant.On("no-expected-sequence")
}

func (h *headers) messageID(m *event.Message) string {
	id := m.UniqueID()
	switch {
	case m.Delivery != "":
		id += "." + m.Delivery
	case m.Epoch != "":
		id += "." + m.Epoch
	}
	return id + h.suffix
}

// bucketOperation is the header that marks deleted keys for the clients of a bucket (NATS ADR-8).
const bucketOperation = "KV-Operation"

// deletionTTL returns the TTL of deletions. It returns an empty string if deletions never expire.
func (s *StreamConfig) deletionTTL() string {
	if !s.LastPerSubject || s.DeletionsKeptFor == 0 {
		return ""
	}
	return s.DeletionsKeptFor.String()
}

func (h *headers) put(prefix, name, value string) {
	s := h.slot(prefix, name)
	if s.round+1 != h.round { // the previous message did not have this header
		h.header[s.name] = s.value
	}
	if s.round = h.round; s.text != value { // about half of the values are the same as in the previous message
		s.text = value
		if prefix != "" {
			value = h.encoder.Replace(value)
		}
		s.value[0] = value
	}
}

// slot returns the slot of a header. Messages usually have the same headers in the same order. Therefore slot first
// tries the one that follows the previous header in the last message.
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

// newEncoder returns the percent-encoding of attributes' values that section 3.1.3.2 of the NATS protocol binding
// requires: of spaces, double quotes, percent signs, and all characters that are not printable ASCII.
func newEncoder() *strings.Replacer {
	var pairs []string
	for c := range 256 {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			pairs = append(pairs, string([]byte{byte(c)}), fmt.Sprintf("%%%02X", c))
		}
	}
	return strings.NewReplacer(pairs...)
}

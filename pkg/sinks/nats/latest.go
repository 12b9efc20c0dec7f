package nats

import (
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// A latest-state stream keeps the last message of each subject, and so the present state of each object.

// ownID is a Nats-Msg-Id under which the server recognises a message that this process sends again, and nothing else. It is
// used where a message must be written although the stream holds its event already: a restatement is the same event as the
// state that it repeats, and in a latest-state stream the last message has to be of the last state. There, ids of events could turn back
// the state after a crash: of two states that are repeated, the older is written, if its id is forgotten, and the newer is
// not.
func (h *headers) ownID(m *event.Message) string {
	return m.UniqueID() + "." + h.run + "." + strconv.FormatInt(m.Time.UnixNano(), 36)
}

// putDeletion adds what makes a message the end of its subject: for a while, and in the eyes of a bucket's clients.
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

// deletionTTL is the TTL of messages that say that an object is gone; empty if they stay.
func (s *StreamConfig) deletionTTL() string {
	if !s.LastPerSubject || s.DeletionsKeptFor == 0 {
		return ""
	}
	return s.DeletionsKeptFor.String()
}

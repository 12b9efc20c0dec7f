package nats

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// A mirror is a stream that keeps the last message of each subject, so that what it holds is the present state.

// ownID is a Nats-Msg-Id under which the server recognises a message that this process sends again, and nothing else. It is
// used where a message must be written although the stream holds its event already: a restatement is the same event as the
// state that it repeats, and in a mirror the last message has to be of the last state. There, ids of events could turn back
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

// apply makes what is known of the stream decide on the headers.
func (s *Sink) apply(c *jetstream.StreamConfig) {
	s.headers.ttl = ""
	if c.AllowMsgTTL {
		s.headers.ttl = s.cfg.Stream.deletionTTL()
	}
}

// deletionTTL is the TTL of messages that say that an object is gone; empty if they stay.
func (s *StreamConfig) deletionTTL() string {
	if !s.LastPerSubject || s.DeletionsKeptFor == 0 {
		return ""
	}
	return s.DeletionsKeptFor.String()
}

// unfit says why the stream can't take what the sink sends, if it can't.
func (s *Sink) unfit(c *jetstream.StreamConfig) error {
	if err := unfit(c, s.subject.Wildcard()); err != nil {
		return err
	}
	if n := c.MaxMsgsPerSubject; s.cfg.Stream.LastPerSubject && n != 1 {
		kept := "all messages"
		if n > 0 {
			kept = fmt.Sprintf("%d messages", n)
		}
		if s.cfg.Bucket != "" {
			return fmt.Errorf("the bucket keeps %s of each key, and nats.bucket asks for one: set its history to 1 (nats kv edit %s --history=1)",
				kept, s.cfg.Bucket)
		}
		return fmt.Errorf("it keeps %s of each subject, and nats.stream.lastPerSubject asks for one: set its max_msgs_per_subject to 1 "+
			"(nats stream edit %s --max-msgs-per-subject=1), or leave lastPerSubject out", kept, c.Name)
	}
	return nil
}

// doubts are those about the stream, for what the sink sends.
func (s *Sink) doubts(c *jetstream.StreamConfig, maxPayload int64) []doubt {
	found := doubts(c, s.subject.Wildcard(), s.cfg.Stream.LastPerSubject, maxPayload)
	if s.cfg.Stream.LastPerSubject && c.MaxAge > 0 {
		found = append(found, doubt{
			fmt.Sprintf("it forgets an object that did not change for %v (max_age)", c.MaxAge), "set its max_age to 0",
		})
	}
	return found
}

// judgeMirror is what of a mirror is no danger, but not as it was asked for.
func (s *Sink) judgeMirror(c *jetstream.StreamConfig) []doubt {
	if s.cfg.Stream.deletionTTL() == "" || c.AllowMsgTTL {
		return nil
	}
	return []doubt{{
		"deletions stay in it, as the last messages of their subjects: it allows no TTL for single messages (allow_msg_ttl)",
		fmt.Sprintf("nats stream edit %s --allow-msg-ttl (nats-server 2.11 or newer), or set nats.stream.deletionsKeptFor: 0s", c.Name),
	}}
}

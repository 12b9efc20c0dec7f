package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

// errNoResponders means that no stream takes the subject, so the message was not stored anywhere.
var errNoResponders = errors.New("no stream has this subject: was the stream deleted, or is JetStream disabled?")

// errFullSubject means that the stream accepts no more messages with this subject.
var errFullSubject = errors.New("the stream has reached its maximum number of messages for this subject")

// ack is the server's answer to one message.
type ack struct {
	err     error // an error of one of the classes of package sinks, or nil
	recheck bool  // the stream has changed and must be checked before the next batch
	// sequence is the sequence of the message, or, if the message was refused, that of the last message of its subject.
	sequence uint64
	// duplicate reports whether the stream had the message already.
	duplicate bool
	// refused reports whether the last message of the subject is not the expected one. numbered reports whether sequence
	// is known in this case.
	refused, numbered bool
	// foreign reports whether the answer is an acknowledgement from a stream in another domain.
	foreign bool
	// otherSubject reports whether the subject belongs to no stream or to another stream.
	otherSubject bool
}

// ackPrefix returns the beginning of a plain acknowledgement from this stream, in a domain unless it is empty. Only a
// number and a brace follow.
func ackPrefix(stream, domain string) []byte {
	text := `{"stream":` + strconv.Quote(stream)
	if domain != "" {
		text += `,"domain":` + strconv.Quote(domain)
	}
	return []byte(text + `,"seq":`)
}

// readAck parses the server's answer. Nearly all answers are plain acknowledgements, which can be recognized without a
// JSON decoder. prefix is the result of ackPrefix with the same domain.
func readAck(m *natsgo.Msg, prefix []byte, domain string) ack {
	rest, ok := bytes.CutPrefix(m.Data, prefix)
	if ok && len(rest) > 1 && string(bytes.TrimLeft(rest, "0123456789")) == "}" {
		sequence, err := strconv.ParseUint(string(rest[:len(rest)-1]), 10, 64)
		if err == nil {
			return ack{sequence: sequence}
		}
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return ack{err: errNoResponders, recheck: true, otherSubject: true}
	}
	var answer struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Domain    string              `json:"domain"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return ack{err: sinks.MaybeWritten(fmt.Errorf("unreadable acknowledgement: %w", err))}
	}
	if answer.Error != nil {
		return rejection(answer.Error)
	}
	if answer.Stream == "" {
		return ack{err: sinks.MaybeWritten(errors.New("the acknowledgement contains no stream name"))}
	}
	if domain != "" && answer.Domain != domain {
		return ack{foreign: true}
	}
	return ack{sequence: answer.Sequence, duplicate: answer.Duplicate} // a duplicate counts as stored
}

// rejection classifies an error from the server. Only errors that depend on nothing but the message are permanent. All
// other errors end when the stream is fixed, when it has room again, or without any action.
func rejection(e *jetstream.APIError) ack {
	switch server.ErrorIdentifier(e.ErrorCode) {
	case server.JSStreamMessageExceedsMaximumErr:
		return ack{err: sinks.Permanent(fmt.Errorf("%w: more than the stream's maximum message size", sinks.ErrOversize))}
	case server.JSStreamHeaderExceedsMaximumErr:
		return ack{err: sinks.Permanent(fmt.Errorf("%w: the headers exceed the server's limit", sinks.ErrOversize))}
	case server.JSStreamNotMatchErr:
		err := fmt.Errorf("another stream has this subject: assign the subject only to the expected stream: %w", e)
		return ack{err: sinks.Rejected(err), recheck: true, otherSubject: true}
	case server.JSStreamWrongLastSequenceErrF, server.JSStreamWrongLastSequenceConstantErr:
		_, number, _ := strings.Cut(e.Description, ": ") // the answer has no field for it
		sequence, err := strconv.ParseUint(number, 10, 64)
		return ack{err: e, refused: true, sequence: sequence, numbered: err == nil}
	case server.JSStreamDuplicateMessageConflict: // an earlier attempt is being replicated
		return ack{err: sinks.MaybeWritten(e)}
	case server.JSStreamNotFoundErr, server.JSMessageTTLDisabledErr:
		return ack{err: e, recheck: true}
	case server.JSStreamStoreFailedF:
		if strings.Contains(e.Description, "per subject") { // the stream has discard: new and discard_new_per_subject
			return ack{err: fmt.Errorf("%w: %w", errFullSubject, e)}
		}
		return ack{
			err: sinks.Rejected(fmt.Errorf("the stream did not store the message (is it full, with discard: new?): %w", e)),
		}
	}
	if natscheck.IsTemporary(e) {
		return ack{err: e}
	}
	return ack{err: sinks.Rejected(e)}
}

// publishError classifies an error from the client that prevents an answer of the server.
func publishError(err error) error {
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return sinks.Permanent(fmt.Errorf("%w: more than the server's max_payload", sinks.ErrOversize))
	case errors.Is(err, natsgo.ErrBadSubject):
		return sinks.Permanent(err)
	case errors.Is(err, natsgo.ErrReconnectBufExceeded): // the size is 0, so the client is disconnected
		return fmt.Errorf("not sent: %w", natsgo.ErrDisconnected)
	case errors.Is(err, natsgo.ErrConnectionClosed), errors.Is(err, natsgo.ErrConnectionDraining),
		errors.Is(err, natsgo.ErrHeadersNotSupported):
		return fmt.Errorf("not sent: %w", err)
	default: // writing to the socket failed, but all bytes may have been sent
		return sinks.MaybeWritten(err)
	}
}

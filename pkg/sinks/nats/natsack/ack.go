// Package natsack reads what a JetStream stream answers to a message.
package natsack

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

// ErrNoResponders means that no stream takes the subject, so the message was not stored anywhere.
var ErrNoResponders = errors.New("no stream has this subject: was the stream deleted, or is JetStream disabled?")

// ErrFullSubject means that the stream accepts no more messages with this subject.
var ErrFullSubject = errors.New("the stream has reached its maximum number of messages for this subject")

// Ack is the server's answer to one message.
type Ack struct {
	Err     error // an error of one of the classes of package sinks, or nil
	Recheck bool  // the stream has changed and must be checked before the next batch
	// Sequence is the sequence of the message. If the message was refused, it is the sequence of the last message of
	// the subject.
	Sequence uint64
	// Duplicate reports whether the stream had the message already.
	Duplicate bool
	// Refused reports whether the last message of the subject is not the expected one. Numbered reports whether Sequence
	// is known in this case.
	Refused, Numbered bool
	// Foreign reports whether the answer is an acknowledgement from a stream in another domain.
	Foreign bool
	// OtherSubject reports whether the subject belongs to no stream or to another stream.
	OtherSubject bool
}

// Reader reads the answers of one stream.
type Reader struct {
	domain string
	// plain is the beginning of a plain acknowledgement from this stream. Only a number and a brace follow.
	plain []byte
}

// NewReader returns a Reader for a stream. domain is the JetStream domain of the stream; it may be empty.
func NewReader(stream, domain string) Reader {
	text := `{"stream":` + strconv.Quote(stream)
	if domain != "" {
		text += `,"domain":` + strconv.Quote(domain)
	}
	return Reader{domain, []byte(text + `,"seq":`)}
}

// Read parses the server's answer. Nearly all answers are plain acknowledgements, which can be recognized without a
// JSON decoder.
func (r Reader) Read(m *natsgo.Msg) Ack {
	rest, plain := bytes.CutPrefix(m.Data, r.plain)
	number, closed := bytes.CutSuffix(rest, []byte("}"))
	if sequence, err := strconv.ParseUint(string(number), 10, 64); plain && closed && err == nil {
		return Ack{Sequence: sequence}
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return Ack{Err: ErrNoResponders, Recheck: true, OtherSubject: true}
	}
	var answer struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Domain    string              `json:"domain"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return Ack{Err: sinks.MaybeWritten(fmt.Errorf("unreadable acknowledgement: %w", err))}
	}
	if answer.Error != nil {
		return Rejection(answer.Error)
	}
	if answer.Stream == "" {
		return Ack{Err: sinks.MaybeWritten(errors.New("the acknowledgement contains no stream name"))}
	}
	if r.domain != "" && answer.Domain != r.domain {
		return Ack{Foreign: true}
	}
	return Ack{Sequence: answer.Sequence, Duplicate: answer.Duplicate} // a duplicate counts as stored
}

// Rejection classifies an error from the server. Only errors that depend on nothing but the message are permanent. All
// other errors end when the stream is fixed, when it has room again, or without any action.
func Rejection(e *jetstream.APIError) Ack {
	switch server.ErrorIdentifier(e.ErrorCode) {
	case server.JSStreamMessageExceedsMaximumErr:
		return Ack{Err: sinks.Permanent(fmt.Errorf("%w: more than the stream's maximum message size", sinks.ErrOversize))}
	case server.JSStreamHeaderExceedsMaximumErr:
		return Ack{Err: sinks.Permanent(fmt.Errorf("%w: the headers exceed the server's limit", sinks.ErrOversize))}
	case server.JSStreamNotMatchErr:
		err := fmt.Errorf("another stream has this subject: assign the subject only to the expected stream: %w", e)
		return Ack{Err: sinks.Rejected(err), Recheck: true, OtherSubject: true}
	case server.JSStreamWrongLastSequenceErrF, server.JSStreamWrongLastSequenceConstantErr:
		_, number, _ := strings.Cut(e.Description, ": ") // the answer has no field for the sequence
		sequence, err := strconv.ParseUint(number, 10, 64)
		return Ack{Err: e, Refused: true, Sequence: sequence, Numbered: err == nil}
	case server.JSStreamDuplicateMessageConflict: // an earlier attempt is being replicated
		return Ack{Err: sinks.MaybeWritten(e)}
	case server.JSStreamNotFoundErr, server.JSMessageTTLDisabledErr:
		return Ack{Err: e, Recheck: true}
	case server.JSStreamStoreFailedF:
		if strings.Contains(e.Description, "per subject") { // the stream has discard: new and discard_new_per_subject
			return Ack{Err: fmt.Errorf("%w: %w", ErrFullSubject, e)}
		}
		return Ack{
			Err: sinks.Rejected(fmt.Errorf("the stream did not store the message (is it full, with discard: new?): %w", e)),
		}
	}
	if natscheck.IsTemporary(e) {
		return Ack{Err: e}
	}
	return Ack{Err: sinks.Rejected(e)}
}

// PublishError classifies an error from the client that prevents an answer of the server.
func PublishError(err error) error {
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

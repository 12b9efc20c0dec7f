package natscheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	// largestObject is the size in bytes of the largest request that etcd accepts by default. The largest object is about
	// as large.
	largestObject = 3 << 19
	// shortWindow is the minimum duplicate window that covers messages that are sent again.
	shortWindow = 2 * time.Minute
)

// Stream describes what a sink requires of its stream.
type Stream struct {
	Access *natsconn.Access
	// Config contains the settings to create the stream with. If MaxMsgsPerSubject is 1, it must be 1 in an existing
	// stream too, and an existing stream should have AllowMsgTTL if Config has it.
	Config   jetstream.StreamConfig
	Create   bool   // create the stream if it does not exist
	Wildcard string // matches the subjects of all events
	Letters  bool   // the messages are dead letters, which are not read back
	// DeletionsKeptFor is the TTL of deletions. It is 0 if they do not expire.
	DeletionsKeptFor time.Duration
}

// isLatest reports whether the stream must keep only the last message of each subject.
func (s *Stream) isLatest() bool { return s.Config.MaxMsgsPerSubject == 1 }

// Destination returns the identity of the stream, which consists of its name and creation time.
func (s *Stream) Destination(info *jetstream.StreamInfo) string {
	return fmt.Sprintf("stream %s, created %s", s.Config.Name, info.Created.UTC().Format(time.RFC3339Nano))
}

// Unfit returns an error if a stream can't store the messages of the sink. It returns nil if the stream can store them.
func (s *Stream) Unfit(c *jetstream.StreamConfig) error {
	if err := s.unfit(c); err != nil {
		return &sinks.ConnectError{
			Step: sinks.StepStream, Key: "nats.stream", Err: fmt.Errorf("stream %s: %w", s.Config.Name, err), Rejected: true,
		}
	}
	return nil
}

func (s *Stream) unfit(c *jetstream.StreamConfig) error {
	switch {
	case c.Sealed:
		return errors.New("it is sealed and accepts no messages: use another stream")
	case c.NoAck:
		return errors.New("it sends no acknowledgements (no_ack): turn no_ack off")
	case c.Mirror != nil:
		return errors.New("it is a mirror and accepts no messages: use the stream that it mirrors")
	case !slices.ContainsFunc(c.Subjects, func(filter string) bool { return server.SubjectsCollide(filter, s.Wildcard) }):
		return fmt.Errorf("its subjects %q include none of %q: add the subject to the stream, or change the sink's subject",
			c.Subjects, s.Wildcard)
	case !s.isLatest() || c.MaxMsgsPerSubject == 1:
		return nil
	case s.Config.AllowRollup: // only buckets are configured with AllowRollup
		return fmt.Errorf("the bucket has a history of %d, but nats.bucket requires 1: run nats kv edit %s --history=1",
			c.MaxMsgsPerSubject, strings.TrimPrefix(c.Name, "KV_"))
	}
	return fmt.Errorf("its max_msgs_per_subject is %d, but nats.stream.lastPerSubject requires 1: "+
		"use nats stream edit %s --max-msgs-per-subject=1, or remove lastPerSubject", c.MaxMsgsPerSubject, c.Name)
}

// Warnings returns the settings that can lose events in the stream. maxPayload is the message size limit of the server.
func (s *Stream) Warnings(c *jetstream.StreamConfig, maxPayload int64) (found []diagnose.Finding) {
	s.warn(&found, !Covers(c.Subjects, s.Wildcard), fmt.Sprintf("add %q to its subjects", s.Wildcard),
		"its subjects %q include only a part of %q: other events are not delivered", c.Subjects, s.Wildcard)
	old := c.Discard == jetstream.DiscardOld
	s.warn(&found, old && (c.MaxBytes > 0 || c.MaxMsgs > 0),
		"set its discard policy to new, with which the bridge waits instead",
		"when full (max_bytes %d, max_msgs %d), it removes its oldest messages", c.MaxBytes, c.MaxMsgs)
	s.warn(&found, c.MaxMsgsPerSubject > 0 && old && !s.isLatest(),
		"remove max_msgs_per_subject, or set nats.stream.lastPerSubject: true to keep only last states",
		"it keeps only the last %d messages of each subject (max_msgs_per_subject)", c.MaxMsgsPerSubject)
	s.warn(&found, c.Retention == jetstream.InterestPolicy, "use retention: limits",
		"its retention is interest: it removes messages for which it has no consumer")
	s.warn(&found, c.PersistMode == jetstream.AsyncPersistMode, "use persist_mode: default",
		"its persist_mode is async: it acknowledges messages before it has stored them")
	s.warn(&found, c.Duplicates < shortWindow && (c.MaxAge == 0 || c.Duplicates < c.MaxAge) && !s.isLatest(),
		fmt.Sprintf("use %s or more", shortWindow),
		"its duplicate_window is only %s: a message that the server receives late can be stored twice", c.Duplicates)
	limit := maxMessage(c, maxPayload)
	s.warn(&found, limit < largestObject, "raise max_payload of the server, and max_msg_size of the stream",
		"it accepts messages of at most %d bytes, but objects can have up to %d bytes: see the sink's oversize setting",
		limit, largestObject)
	s.warn(&found, s.isLatest() && c.MaxAge > 0, "set its max_age to 0",
		"it removes objects that do not change for %v (max_age)", c.MaxAge)
	return found
}

// Covers reports whether one filter alone matches everything that subject matches. subject may have wildcards.
func Covers(filters []string, subject string) bool {
	return slices.ContainsFunc(filters, func(filter string) bool { return server.SubjectMatchesFilter(subject, filter) })
}

// warn appends a warning about the stream to found if it applies.
func (s *Stream) warn(found *[]diagnose.Finding, applies bool, remedy, format string, args ...any) {
	if applies {
		f := s.finding(fmt.Sprintf(format, args...))
		f.Warn, f.Remedy = true, remedy
		*found = append(*found, f)
	}
}

// maxMessage returns the size in bytes of the largest message that both the server and the stream accept.
func maxMessage(c *jetstream.StreamConfig, maxPayload int64) int64 {
	if c.MaxMsgSize > 0 {
		return min(maxPayload, int64(c.MaxMsgSize))
	}
	return maxPayload
}

const leaderRemedy = "check whether the cluster has a JetStream leader (nats server report jetstream)"

// Error explains why the stream could not be found, created or read back.
func (s *Stream) Error(err error) error {
	name := s.Config.Name
	e := &sinks.ConnectError{Step: sinks.StepStream, Key: "nats.stream", Err: fmt.Errorf("stream %s: %w", name, err)}
	api, isAPI := errors.AsType[jetstream.JetStreamError](err)
	switch {
	case errors.Is(err, natsgo.ErrPermissionViolation):
		return s.Access.Denied("stream "+name+" can't be looked up or created", err, s.Wildcard)
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		const text = "JetStream is not enabled for the server or this account, or it has not started yet (%v)"
		e.Key, e.Err = "", access.Words(err, text, err)
		e.Remedy = "enable JetStream on the server, and for the account of " + s.Access.Auth.Who()
		if s.Access.Domain+s.Access.APIPrefix != "" {
			e.Remedy += ", or correct nats.domain or nats.apiPrefix"
		}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		e.Key = "nats.stream.create"
		e.Err, e.Rejected = access.Words(err, "stream %s does not exist", name), true
		e.Remedy = "create it, correct nats.stream.name, or set nats.stream.create: true"
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = access.Words(err, "stream %s: JetStream does not respond within %v", name, s.Access.Timeout)
		e.Remedy = leaderRemedy
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		e.Err = access.Words(err, "stream %s: the server has removed the consumer that reads the stream back", name)
		e.Remedy = leaderRemedy
	case isAPI && api.APIError() != nil:
		e.Err = access.Words(err, "cannot create stream %s: %s", name, api.APIError().Description)
		e.Key, e.Remedy = creationRemedy(server.ErrorIdentifier(api.APIError().ErrorCode))
		e.Rejected = !IsTemporary(api.APIError())
	}
	return e
}

// IsTemporary reports whether an error means that a server or cluster is not ready yet. A missing consumer is temporary
// too: a server removes an ephemeral consumer if it does not notice a reader for some seconds, for example because the
// cluster is electing leaders.
func IsTemporary(e *jetstream.APIError) bool {
	switch code := server.ErrorIdentifier(e.ErrorCode); code {
	case server.JSConsumerNotFoundErr:
		return true
	case server.JSStreamStoreFailedF, server.JSInsufficientResourcesErr:
		return false
	default:
		return e.Code == http.StatusServiceUnavailable
	}
}

// IsAnswer reports whether err is an answer of JetStream that will probably not change soon.
func IsAnswer(err error) bool {
	api, ok := errors.AsType[jetstream.JetStreamError](err)
	return ok && api.APIError() != nil && !IsTemporary(api.APIError())
}

// creationRemedy returns the configuration key to look at and the remedy if a stream can't be created.
func creationRemedy(code server.ErrorIdentifier) (key, remedy string) {
	switch code {
	case server.JSStreamSubjectOverlapErr:
		return "nats.stream.subjects", "set nats.stream.name to that stream, or use other subjects"
	case server.JSStreamReplicasNotSupportedErr, server.JSClusterNoPeersErrF:
		return "nats.stream.replicas", "set at most as many replicas as the cluster has servers with JetStream"
	case server.JSInsufficientResourcesErr, server.JSMemoryResourcesExceededErr, server.JSStorageResourcesExceededErr,
		server.JSAccountResourcesExceededErr:
		return "nats.stream.maxBytes", "raise the limits of the server or the account, or reduce the size limits of the stream"
	case server.JSMaximumStreamsLimitErr:
		return "nats.stream.create", "raise the account's limit on streams, or use an existing stream"
	}
	return "nats.stream", ""
}

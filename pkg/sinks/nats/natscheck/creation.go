package natscheck

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	// shortAge is a maximum message age that a usual outage of a consumer exceeds.
	shortAge = time.Hour
	// shortDeletion is a TTL of deletions that a message on its way to the server can exceed.
	shortDeletion = 10 * time.Minute
)

// doctorWarnings returns all warnings. In addition to [Stream.Warnings], it reports settings that lose no events during
// delivery but that an operator may not expect.
func (s *Stream) doctorWarnings(c *jetstream.StreamConfig, maxPayload int64) []diagnose.Finding {
	found := s.Warnings(c, maxPayload)
	s.warn(&found, s.Config.AllowMsgTTL && !c.AllowMsgTTL,
		"use nats stream edit "+c.Name+" --allow-msg-ttl (nats-server 2.11), or set nats.stream.deletionsKeptFor: 0s",
		"it keeps deletions forever, because it allows no TTL for single messages (allow_msg_ttl)")
	s.warn(&found, c.AllowMsgTTL && s.DeletionsKeptFor > 0 && s.DeletionsKeptFor < shortDeletion,
		"set nats.stream.deletionsKeptFor to 10m or more",
		"it keeps deletions only for %v: a message that the server receives later can bring a deleted object back",
		s.DeletionsKeptFor)
	s.warn(&found, c.Replicas <= 1 && !s.Embedded, "use 3 replicas, in a cluster of at least 3 servers (num_replicas)",
		"it has one replica: if the server loses its data, acknowledged messages are lost")
	s.warn(&found, c.Storage == jetstream.MemoryStorage && c.Replicas <= 1, "use storage: file",
		"its storage is memory: a restart of the server removes its messages")
	s.warn(&found, c.Storage == jetstream.MemoryStorage && c.Replicas > 1, "use storage: file",
		"its storage is memory: if all its servers are down at the same time, its messages are gone")
	s.warn(&found, c.MaxAge > 0 && c.MaxAge < shortAge && !s.isLatest(), "raise max_age",
		"it keeps messages for %v: consumers that are away for longer miss them", c.MaxAge)
	return found
}

func describe(c *jetstream.StreamConfig) string {
	return fmt.Sprintf("subjects %q, %s, replicas %d, retention %s, discard %s, max_bytes %d, max_msgs %d, max_age %v, "+
		"duplicate_window %v", c.Subjects, c.Storage, c.Replicas, c.Retention, c.Discard, c.MaxBytes, c.MaxMsgs, c.MaxAge,
		c.Duplicates)
}

// CheckConfigured returns findings about the stream as it would be created. may contains the user's permissions; it is
// nil if they are not known.
func (s *Stream) CheckConfigured(maxPayload int64, may *server.Permissions) []diagnose.Finding {
	ok := s.finding("the bridge creates it at startup if it does not exist: " + describe(&s.Config))
	return slices.Concat([]diagnose.Finding{ok}, s.doctorWarnings(&s.Config, maxPayload),
		s.readBackWarnings(&s.Config, 0, may))
}

// checkCreation reports problems that would prevent the creation of the stream. It does not create the stream.
func (s *Stream) checkCreation(
	ctx context.Context, t *natsconn.Attempt, may *server.Permissions,
) []diagnose.Finding {
	if err := s.CreationError(ctx, t); err != nil {
		return []diagnose.Finding{s.failed(err)}
	}
	return s.CheckConfigured(t.Conn.MaxPayload(), may)
}

// CreationError returns the error that the creation of the stream would probably return, or nil. It does not create the
// stream.
func (s *Stream) CreationError(ctx context.Context, t *natsconn.Attempt) error {
	var problem *jetstream.APIError // the error that the server would return
	refuse := func(code server.ErrorIdentifier, format string, args ...any) {
		problem = &jetstream.APIError{ErrorCode: jetstream.ErrorCode(code), Description: fmt.Sprintf(format, args...)}
	}
	if s.Config.Replicas > 1 && t.Conn.ConnectedClusterName() == "" {
		const text = "%d replicas are configured, but the server is not in a cluster"
		refuse(server.JSStreamReplicasNotSupportedErr, text, s.Config.Replicas)
	}
	for _, subject := range s.Config.Subjects {
		_ = t.Ask(ctx, func(ctx context.Context) error { // without permission for this request, an overlap goes undetected
			if other, err := t.JetStream.StreamNameBySubject(ctx, subject); err == nil && other != s.Config.Name {
				refuse(server.JSStreamSubjectOverlapErr, "the subjects of stream %s overlap with %q", other, subject)
			}
			return nil
		})
	}
	if problem != nil {
		return s.Error(problem)
	}
	return nil
}

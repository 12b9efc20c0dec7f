package natscheck

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// shortAge is a maximum message age that a usual outage of a consumer exceeds.
const shortAge = time.Hour

// doctorWarnings returns all warnings. In addition to [Stream.Warnings], it reports settings that lose no events during
// delivery but that an operator may not expect.
func (s *Stream) doctorWarnings(c *jetstream.StreamConfig, maxPayload int64) []diagnose.Finding {
	w := warnings{stream: s, found: s.Warnings(c, maxPayload)}
	w.add(
		s.Config.AllowMsgTTL && !c.AllowMsgTTL,
		fmt.Sprintf(
			"nats stream edit %s --allow-msg-ttl (nats-server 2.11 or newer), or set nats.stream.deletionsKeptFor: 0s",
			c.Name,
		),
		"deletions stay in it, as the last messages of their subjects: it allows no TTL for single messages (allow_msg_ttl)",
	)
	w.add(c.Replicas <= 1 && !s.Embedded, "give it 3 replicas, on a cluster of 3 servers or more (num_replicas)",
		"it has one replica: what a lost server held is lost, acknowledged or not")
	w.add(c.Storage == jetstream.MemoryStorage && c.Replicas <= 1, "use storage: file",
		"it is kept in memory: a restart of the server loses it")
	w.add(c.MaxAge > 0 && c.MaxAge < shortAge && !s.isLatest(), "raise max_age",
		"it keeps messages for %v: readers that are away for longer miss them", c.MaxAge)
	return w.found
}

func describe(c *jetstream.StreamConfig) string {
	return fmt.Sprintf(
		"subjects %q, %s, replicas %d, retention %s, discard %s, max_bytes %d, max_msgs %d, max_msgs_per_subject %d, "+
			"max_age %v, max_msg_size %d, duplicate_window %v",
		c.Subjects,
		c.Storage,
		c.Replicas,
		c.Retention,
		c.Discard,
		c.MaxBytes,
		c.MaxMsgs,
		c.MaxMsgsPerSubject,
		c.MaxAge,
		c.MaxMsgSize,
		c.Duplicates,
	)
}

// CheckConfigured returns findings about the stream as it would be created.
func (s *Stream) CheckConfigured(maxPayload int64) []diagnose.Finding {
	ok := s.finding("it is created at the start if it is not there: " + describe(&s.Config))
	return append([]diagnose.Finding{ok}, s.doctorWarnings(&s.Config, maxPayload)...)
}

// checkCreation reports problems that would prevent the creation of the stream. It does not create the stream.
func (s *Stream) checkCreation(ctx context.Context, js jetstream.JetStream, t *natsconn.Attempt) []diagnose.Finding {
	name := s.Config.Name
	var code server.ErrorIdentifier
	var err error
	if s.Config.Replicas > 1 && t.Conn.ConnectedClusterName() == "" {
		code = server.JSStreamReplicasNotSupportedErr
		err = fmt.Errorf("%d replicas are asked for, and the server is in no cluster", s.Config.Replicas)
	}
	for _, subject := range s.Config.Subjects {
		_ = t.Ask(ctx, func(ctx context.Context) error { // without the permission for this request, an overlap stays unknown
			other, unknown := js.StreamNameBySubject(ctx, subject)
			if unknown == nil && other != name {
				code = server.JSStreamSubjectOverlapErr
				err = fmt.Errorf("stream %s takes %q already, or a part of it", other, subject)
			}
			return nil
		})
	}
	if err == nil {
		return s.CheckConfigured(t.Conn.MaxPayload())
	}
	e := &sinks.ConnectError{
		Step: sinks.StepStream,
		Err:  fmt.Errorf("stream %s is not there, and can't be created: %w", name, err),
	}
	e.Key, e.Remedy = creationRemedy(code)
	return []diagnose.Finding{s.failed(e)}
}

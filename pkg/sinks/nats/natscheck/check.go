package natscheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	// shortAge is a maximum message age that a usual outage of a consumer exceeds.
	shortAge = time.Hour
	// shortDeletion is a TTL of deletions that a message on its way to the server can exceed.
	shortDeletion = 10 * time.Minute
)

// Reach checks the files and every server. It returns a connection to the first server that can be used, which the
// caller must close, or nil.
func Reach(ctx context.Context, servers *natsconn.Access) (t *natsconn.Attempt, findings []diagnose.Finding) {
	files, err := servers.CheckFiles()
	if err != nil {
		return nil, []diagnose.Finding{diagnose.Failed(sinks.StepFiles, "nats", err)}
	}
	if len(files) > 0 {
		detail := strings.Join(files, ", ")
		findings = append(findings, diagnose.Finding{Step: sinks.StepFiles, Target: "nats", Detail: detail})
	}
	t, found, _ := servers.First(ctx)
	return t, append(findings, found...)
}

// Check checks the files, every server and the stream. destination is the identity of the stream; empty if it is not
// known.
func (s *Stream) Check(ctx context.Context) (findings []diagnose.Finding, destination string) {
	t, findings := Reach(ctx, s.Access)
	if t == nil {
		return findings, ""
	}
	defer t.Conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	info, found := s.Inspect(ctx, t, s.Unfit)
	findings = append(findings, found...)
	if info == nil {
		return findings, ""
	}
	return slices.Concat(findings, s.doctorWarnings(&info.Config, t.Conn.MaxPayload()),
		s.readBackWarnings(ctx, t, info)), s.Destination(info)
}

// Inspect looks up the stream, and tries what the user may do with it. It returns nil if the stream does not exist or
// is unfit.
func (s *Stream) Inspect(
	ctx context.Context, t *natsconn.Attempt, unfit func(*jetstream.StreamConfig) error,
) (*jetstream.StreamInfo, []diagnose.Finding) {
	info, err := s.find(ctx, t)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.Create:
		return nil, []diagnose.Finding{s.tryToCreate(ctx, t)}
	case err != nil:
		err = s.Error(err)
	default:
		err = unfit(&info.Config)
	}
	if err != nil {
		return nil, []diagnose.Finding{s.failed(err)}
	}
	return info, []diagnose.Finding{
		s.finding(fmt.Sprintf("%s; %d messages", describe(&info.Config), info.State.Msgs)),
		s.tryToPublish(ctx, t, info.Config.Subjects),
	}
}

// find returns the stream info.
func (s *Stream) find(ctx context.Context, t *natsconn.Attempt) (info *jetstream.StreamInfo, err error) {
	err = t.Ask(ctx, func(ctx context.Context) error {
		stream, err := t.JetStream.Stream(ctx, s.Config.Name)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	return info, err
}

func (s *Stream) finding(detail string) diagnose.Finding {
	return diagnose.Finding{Step: sinks.StepStream, Target: "stream " + s.Config.Name, Detail: detail}
}

func (s *Stream) failed(err error) diagnose.Finding {
	return diagnose.Failed(sinks.StepStream, "stream "+s.Config.Name, err)
}

func describe(c *jetstream.StreamConfig) string {
	return fmt.Sprintf("subjects %q, %s, replicas %d, retention %s, discard %s, max_bytes %d, max_msgs %d, max_age %v, "+
		"duplicate_window %v", c.Subjects, c.Storage, c.Replicas, c.Retention, c.Discard, c.MaxBytes, c.MaxMsgs, c.MaxAge,
		c.Duplicates)
}

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
	s.warn(&found, c.Replicas <= 1, "use 3 replicas, in a cluster of at least 3 servers (num_replicas)",
		"it has one replica: if the server loses its data, acknowledged messages are lost")
	s.warn(&found, c.Storage == jetstream.MemoryStorage && c.Replicas <= 1, "use storage: file",
		"its storage is memory: a restart of the server removes its messages")
	s.warn(&found, c.Storage == jetstream.MemoryStorage && c.Replicas > 1, "use storage: file",
		"its storage is memory: if all its servers are down at the same time, its messages are gone")
	s.warn(&found, c.MaxAge > 0 && c.MaxAge < shortAge && !s.isLatest(), "raise max_age",
		"it keeps messages for %v: consumers that are away for longer miss them", c.MaxAge)
	return found
}

// MaxMessage returns the size in bytes of the largest message that the server and the stream accept.
func (s *Stream) MaxMessage(ctx context.Context) (int64, error) {
	t, _, err := s.Access.First(ctx)
	if err != nil {
		return 0, err
	}
	defer t.Conn.Close()
	limit := t.Conn.MaxPayload()
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	info, err := s.find(ctx, t)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.Create:
		return limit, nil // the stream would be created without a message size limit
	case err != nil:
		return limit, s.Error(err)
	}
	return maxMessage(&info.Config, limit), s.Unfit(&info.Config)
}

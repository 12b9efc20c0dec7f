package natscheck

import (
	"context"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// warnings are the doubts about a stream, and what is no danger, but not as one would expect it.
func (s *Stream) warnings(c *jetstream.StreamConfig, maxPayload int64) (findings []diagnose.Finding) {
	d := doubts(s.Doubts(c, maxPayload))
	d.add(s.DeletionTTL && !c.AllowMsgTTL,
		fmt.Sprintf("nats stream edit %s --allow-msg-ttl (nats-server 2.11 or newer), or set nats.stream.deletionsKeptFor: 0s", c.Name),
		"deletions stay in it, as the last messages of their subjects: it allows no TTL for single messages (allow_msg_ttl)")
	d.add(c.Replicas <= 1 && !s.Embedded, "give it 3 replicas, on a cluster of 3 servers or more (num_replicas)",
		"it has one replica: what a lost server held is lost, acknowledged or not")
	d.add(c.Storage == jetstream.MemoryStorage && c.Replicas <= 1, "use storage: file",
		"it is kept in memory: a restart of the server loses it")
	d.add(c.MaxAge > 0 && c.MaxAge < shortAge && !s.Latest, "raise max_age",
		"it keeps messages for %v: readers that are away for longer miss them", c.MaxAge)
	for _, doubt := range d {
		f := s.finding(doubt.What)
		f.Warn, f.Remedy = true, doubt.Remedy
		findings = append(findings, f)
	}
	return findings
}

func describe(c *jetstream.StreamConfig) string {
	return fmt.Sprintf("subjects %q, %s, replicas %d, retention %s, discard %s, max_bytes %d, max_msgs %d, max_msgs_per_subject %d, "+
		"max_age %v, max_msg_size %d, duplicate_window %v", c.Subjects, c.Storage, c.Replicas, c.Retention, c.Discard, c.MaxBytes,
		c.MaxMsgs, c.MaxMsgsPerSubject, c.MaxAge, c.MaxMsgSize, c.Duplicates)
}

// CheckConfigured returns what there is to say of a stream that would be created, as far as the configuration tells.
func (s *Stream) CheckConfigured(maxPayload int64) []diagnose.Finding {
	ok := s.finding("it is created at the start if it is not there: " + describe(&s.Config))
	return append([]diagnose.Finding{ok}, s.warnings(&s.Config, maxPayload)...)
}

// checkCreation finds what would prevent the creation of the stream, without creating it.
func (s *Stream) checkCreation(ctx context.Context, js jetstream.JetStream, t *natsconn.Attempt) []diagnose.Finding {
	config := &s.Config
	refused := func(code server.ErrorIdentifier, format string, args ...any) []diagnose.Finding {
		err := fmt.Errorf("stream "+config.Name+" is not there, and can't be created: "+format, args...)
		e := &sinks.ConnectError{Step: sinks.StepStream, Err: err}
		e.Key, e.Remedy = creationRemedy(code)
		return []diagnose.Finding{s.failed(e)}
	}
	if config.Replicas > 1 && t.Conn.ConnectedClusterName() == "" {
		return refused(server.JSStreamReplicasNotSupportedErr, "%d replicas are asked for, and the server is in no cluster", config.Replicas)
	}
	for _, subject := range config.Subjects {
		other := config.Name // what may not be asked stays unknown
		_ = t.Ask(ctx, func(ctx context.Context) (err error) {
			if name, err := js.StreamNameBySubject(ctx, subject); err == nil {
				other = name
			}
			return nil
		})
		if other != config.Name {
			return refused(server.JSStreamSubjectOverlapErr, "stream %s takes %q already, or a part of it", other, subject)
		}
	}
	var account *jetstream.AccountInfo
	err := t.Ask(ctx, func(ctx context.Context) (err error) {
		account, err = js.AccountInfo(ctx)
		return err
	})
	switch {
	case isDisabled(err):
		return []diagnose.Finding{s.failed(s.Error(err))}
	case err != nil: // without the permission to ask, the limits stay unknown
		return s.CheckConfigured(t.Conn.MaxPayload())
	}
	limits := account.Limits
	room, used := limits.MaxStore, account.Store
	if config.Storage == jetstream.MemoryStorage {
		room, used = limits.MaxMemory, account.Memory
	}
	switch {
	case limits.MaxStreams > 0 && account.Streams >= limits.MaxStreams:
		return refused(server.JSMaximumStreamsLimitErr, "the account may have %d streams, and has them", limits.MaxStreams)
	case room >= 0 && config.MaxBytes > 0 && config.MaxBytes*int64(config.Replicas) > room-int64(used):
		return refused(server.JSStorageResourcesExceededErr, "it may take %d bytes on each of %d servers, and the account has %d left",
			config.MaxBytes, config.Replicas, room-int64(used))
	}
	return s.CheckConfigured(t.Conn.MaxPayload())
}

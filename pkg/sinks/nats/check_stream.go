package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// shortAge is less than an ordinary outage of a reader.
const shortAge = time.Hour

// judgeStream holds a stream that is there against what the bridge promises.
func (s *Sink) judgeStream(info *jetstream.StreamInfo, maxPayload int64) []sinks.Finding {
	target := "stream " + s.cfg.Stream.Name
	if err := s.unfit(&info.Config); err != nil {
		return []sinks.Finding{sinks.Failed(sinks.StepStream, target, s.unfitError(err))}
	}
	detail := fmt.Sprintf("%s; %d messages", describe(&info.Config), info.State.Msgs)
	return append([]sinks.Finding{{Step: sinks.StepStream, Target: target, Detail: detail}}, s.judgeConfig(&info.Config, maxPayload)...)
}

// judgeConfig is the warnings about a stream.
func (s *Sink) judgeConfig(c *jetstream.StreamConfig, maxPayload int64) (findings []sinks.Finding) {
	found := append(s.doubts(c, maxPayload), s.judgeMirror(c)...)
	if c.Replicas <= 1 && s.cfg.Embedded == nil { // of an embedded server everyone knows
		found = append(found, doubt{
			"it has one replica: what a lost server held is lost, acknowledged or not", "give it 3 replicas, on a cluster of 3 servers or more (num_replicas)",
		})
	}
	if c.Storage == jetstream.MemoryStorage && c.Replicas <= 1 {
		found = append(found, doubt{"it is kept in memory: a restart of the server loses it", "use storage: file"})
	}
	if c.MaxAge > 0 && c.MaxAge < shortAge && !s.cfg.Stream.LastPerSubject {
		found = append(found, doubt{fmt.Sprintf("it keeps messages for %v: readers that are away for longer miss them", c.MaxAge), "raise max_age"})
	}
	for _, d := range found {
		findings = append(findings, sinks.Finding{
			Step: sinks.StepStream, Target: "stream " + s.cfg.Stream.Name, Warn: true, Detail: d.what, Remedy: d.remedy,
		})
	}
	return findings
}

func describe(c *jetstream.StreamConfig) string {
	return fmt.Sprintf("subjects %q, %s, replicas %d, retention %s, discard %s, max_bytes %d, max_msgs %d, max_msgs_per_subject %d, max_age %v, max_msg_size %d, duplicate_window %v",
		c.Subjects, c.Storage, c.Replicas, c.Retention, c.Discard, c.MaxBytes, c.MaxMsgs, c.MaxMsgsPerSubject, c.MaxAge, c.MaxMsgSize, c.Duplicates)
}

// checkConfigured is the findings about a stream that would be created, as far as the configuration tells.
func (s *Sink) checkConfigured(maxPayload int64) []sinks.Finding {
	config := s.cfg.jetstream(s.subject.Wildcard())
	ok := sinks.Finding{
		Step: sinks.StepStream, Target: "stream " + config.Name, Detail: "it is created at the start if it is not there: " + describe(&config),
	}
	return append([]sinks.Finding{ok}, s.judgeConfig(&config, maxPayload)...)
}

// checkCreation finds what would stand in the way of creating the stream, without creating it.
func (s *Sink) checkCreation(ctx context.Context, js jetstream.JetStream, t *trial, maxPayload int64) []sinks.Finding {
	config := s.cfg.jetstream(s.subject.Wildcard())
	target := "stream " + config.Name
	refuse := func(key, remedy, format string, args ...any) []sinks.Finding {
		return []sinks.Finding{sinks.Failed(sinks.StepStream, target, &sinks.ConnectError{
			Step: sinks.StepStream, Key: key, Remedy: remedy, Err: fmt.Errorf("stream "+config.Name+" is not there, and can't be created: "+format, args...),
		})}
	}
	if config.Replicas > 1 && t.info.known && t.info.Cluster == "" {
		key, remedy := creationRemedy(10074)
		return refuse(key, remedy, "%d replicas are asked for, and the server is in no cluster", config.Replicas)
	}
	for _, subject := range config.Subjects {
		watched, end := t.denials.during(ctx) // what may not be asked stays unknown
		other, err := js.StreamNameBySubject(watched, subject)
		if _ = end(); err == nil && other != config.Name {
			key, remedy := creationRemedy(10065)
			return refuse(key, remedy, "stream %s takes %q already, or a part of it", other, subject)
		}
	}
	watched, end := t.denials.during(ctx)
	account, err := js.AccountInfo(watched)
	_ = end()
	if errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
		return []sinks.Finding{sinks.Failed(sinks.StepStream, target, s.streamError(err, nil))}
	}
	if err == nil { // without the permission to ask, the limits stay unknown
		limits := account.Limits
		room, used := limits.MaxStore, account.Store
		if config.Storage == jetstream.MemoryStorage {
			room, used = limits.MaxMemory, account.Memory
		}
		switch {
		case limits.MaxStreams > 0 && account.Streams >= limits.MaxStreams:
			key, remedy := creationRemedy(10027)
			return refuse(key, remedy, "the account may have %d streams, and has them", limits.MaxStreams)
		case room >= 0 && config.MaxBytes > 0 && config.MaxBytes*int64(config.Replicas) > room-int64(used):
			key, remedy := creationRemedy(10047)
			return refuse(key, remedy, "it may take %d bytes on each of %d servers, and the account has %d left", config.MaxBytes, config.Replicas, room-int64(used))
		}
	}
	return s.checkConfigured(maxPayload)
}

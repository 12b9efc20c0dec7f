package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// deadLetterRecord is the largest record of a topic for dead letters that the bridge creates, in bytes, as Kafka's settings
// have it: more than the largest change.
const deadLetterRecord = "16777216"

// buildRefusals says what the drain does with events that the sink's destination refuses for good. It does no I/O.
func (p *pipeline) buildRefusals(s *config.Sink, state string) (r sinks.Refusals, err error) {
	r.Oversize = sinks.Outcome(s.Oversize)
	if s.Oversize == config.OversizeClaimCheck {
		if r.Claims, err = p.buildClaims(s); err != nil {
			return r, fmt.Errorf("claimCheck: %w", err)
		}
	}
	switch d := s.DeadLetter; {
	case d == nil:
	case d.File != nil:
		p.letters = deadLetterFile(state, s)
		p.letters.Logger = p.log
		r.DeadLetters = p.letters
	default:
		if r.DeadLetters, err = p.buildLetterSink(s); err != nil {
			return r, fmt.Errorf("deadLetter: %w", err)
		}
	}
	return r, nil
}

// deadLetterFile is that of a sink, whether or not its configuration still asks for one.
func deadLetterFile(state string, s *config.Sink) *deadletter.File {
	f := &deadletter.File{Path: filepath.Join(state, deadletter.Name(s.Name))}
	if s.DeadLetter != nil && s.DeadLetter.File != nil {
		f.MaxBytes = int64(s.DeadLetter.File.MaxBytes)
	}
	return f
}

// buildClaims makes the object store, on the connection of a sink of NATS or on one of its own.
func (p *pipeline) buildClaims(s *config.Sink) (sinks.Claims, error) {
	c := s.ClaimCheck
	cfg := nats.ClaimConfig{Bucket: c.Bucket, Create: c.Create, TTL: time.Duration(c.TTL), MaxBytes: int64(c.MaxBytes), Replicas: c.Replicas}
	if c.NATS == nil {
		return p.sink.(*nats.Sink).Claims(cfg), nil // the configuration was checked
	}
	servers := config.DefaultNATS()
	servers.URL, servers.TLS = c.NATS.URL, c.NATS.TLS
	servers.CredentialsFile, servers.NkeyFile, servers.TokenFile = c.NATS.CredentialsFile, c.NATS.NkeyFile, c.NATS.TokenFile
	servers.User, servers.PasswordFile = c.NATS.User, c.NATS.PasswordFile
	claims, err := nats.NewClaims(p.natsConfig(&servers), cfg)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, claims.Close)
	return claims, nil
}

// buildLetterSink makes the sink of a topic or a subject for dead letters: that of the events, with another destination.
func (p *pipeline) buildLetterSink(s *config.Sink) (sinks.DeadLetters, error) {
	if s.Kafka != nil {
		cfg := p.kafkaConfig(s.Kafka)
		cfg.Topic, cfg.Tombstones = s.DeadLetter.Topic, false
		if cfg.CreateTopics != nil { // a compacted topic would forget letters
			cfg.CreateTopics = &kafka.CreateTopics{
				Partitions: 1, ReplicationFactor: cfg.CreateTopics.ReplicationFactor,
				Config: map[string]string{"max.message.bytes": deadLetterRecord},
			}
		}
		sink, err := kafka.New(cfg)
		if err != nil {
			return nil, err
		}
		p.closers = append(p.closers, sink.Close)
		return &sinks.LetterSink{Sink: sink, Where: "topic " + s.DeadLetter.Topic}, nil
	}
	cfg := p.natsConfig(s.NATS)
	cfg.LettersOf = s.Name
	cfg.Subject, cfg.Stream.Name, cfg.Stream.Subjects = s.DeadLetter.Subject, s.DeadLetter.Stream, nil
	cfg.Stream.LastPerSubject, cfg.Stream.KeyValue, cfg.Stream.DeletionsKeptFor = false, false, 0 // it is no mirror, whatever the sink's is
	sink, err := nats.New(cfg)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, sink.Close)
	return &sinks.LetterSink{Sink: sink, Where: "subject " + s.DeadLetter.Subject}, nil
}

// close gives up the connections of the sink, and those for what it refuses.
func (p *pipeline) close(ctx context.Context) {
	for _, closer := range append(p.closers, p.sink.Close) { // claims may use the connection of the sink
		if err := closer(ctx); err != nil {
			p.log.Warn("sink did not close cleanly", "err", err)
		}
	}
	if p.drain == nil { // a command's: it delivers nothing
		return
	}
	for _, part := range p.drain.Unavailable() {
		p.log.Warn("events are parked until their destination takes them", "destination", part.Destination, "events", part.Events)
	}
	if store := p.drain.Parked; store != nil {
		if err := store.Close(); err != nil {
			p.log.Error("parked events did not close cleanly", "err", err)
		}
	}
}

// whenTooLarge says what becomes of an event that is larger than the sink's destination takes.
func whenTooLarge(s *config.Sink) string {
	switch s.Oversize {
	case config.OversizeMetadata:
		return "sent with the metadata of the object alone (oversize: metadata)"
	case config.OversizeClaimCheck:
		return "sent with the metadata of the object alone, and its data goes to the object store " + s.ClaimCheck.Bucket
	case config.OversizeDeadLetter:
		return "kept as a dead letter, and a gap event takes its place"
	}
	return "the destination refuses it, and a gap event takes its place"
}

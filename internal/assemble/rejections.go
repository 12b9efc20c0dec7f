package assemble

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// Rejections says what is done with events that the destination rejects. state is the directory for dead letters. It does no I/O.
func (d *Destination) Rejections(s *config.Sink, state string) (r sinks.Rejections, err error) {
	r.Oversize = sinks.Outcome(s.Oversize)
	if s.Oversize == config.OversizeClaimCheck {
		if r.Payloads, err = d.buildPayloads(s); err != nil {
			return r, fmt.Errorf("sink %s: claimCheck: %w", s.Name, err)
		}
	}
	switch letters := s.DeadLetter; {
	case letters == nil:
	case letters.File != nil:
		r.DeadLetters = DeadLetterFile(state, s)
	default:
		if r.DeadLetters, err = d.buildDeadLetterSink(s); err != nil {
			return r, fmt.Errorf("sink %s: deadLetter: %w", s.Name, err)
		}
	}
	return r, nil
}

// DeadLetterFile is that of a sink, whether or not its configuration still asks for one.
func DeadLetterFile(state string, s *config.Sink) *deadletter.File {
	f := &deadletter.File{Path: filepath.Join(state, deadletter.Name(s.Name))}
	if s.DeadLetter != nil && s.DeadLetter.File != nil {
		f.MaxBytes = int64(s.DeadLetter.File.MaxBytes)
	}
	return f
}

// buildPayloads makes the object store, on the connection of a sink of NATS or on one of its own.
func (d *Destination) buildPayloads(s *config.Sink) (sinks.PayloadStore, error) {
	c := s.ClaimCheck
	cfg := nats.PayloadConfig{Bucket: c.Bucket, Create: c.Create, TTL: time.Duration(c.TTL), MaxBytes: int64(c.MaxBytes), Replicas: c.Replicas}
	if c.NATS == nil {
		return d.Sink.(*nats.Sink).PayloadStore(cfg), nil // the configuration was checked
	}
	servers := config.DefaultNATS()
	servers.URL, servers.TLS = c.NATS.URL, c.NATS.TLS
	servers.CredentialsFile, servers.NkeyFile, servers.TokenFile = c.NATS.CredentialsFile, c.NATS.NkeyFile, c.NATS.TokenFile
	servers.User, servers.PasswordFile = c.NATS.User, c.NATS.PasswordFile
	claims, err := nats.NewPayloadStore(d.natsConfig(&servers), cfg)
	if err != nil {
		return nil, err
	}
	d.Closers = append(d.Closers, claims.Close)
	return claims, nil
}

// buildDeadLetterSink makes the sink of a topic or a subject for dead letters.
func (d *Destination) buildDeadLetterSink(s *config.Sink) (sinks.DeadLetters, error) {
	sink, where, err := d.kind.letters(d, s)
	if err != nil {
		return nil, err
	}
	d.Closers = append(d.Closers, sink.Close)
	return &sinks.DeadLetterSink{Sink: sink, Where: where}, nil
}

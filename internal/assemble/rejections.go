package assemble

import (
	"fmt"
	"path/filepath"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// Rejections returns how messages that the destination rejects are handled. state is the directory for dead letters.
// Rejections does no I/O.
func (d *Destination) Rejections(s *config.Sink, state string) (r sinks.Rejections, err error) {
	r.Oversize = s.Oversize
	if s.Oversize == sinks.OutcomeClaimCheck {
		r.Payloads = d.buildPayloads(s)
	}
	switch letters := s.DeadLetter; {
	case letters == nil:
	case letters.File != nil:
		r.DeadLetters = DeadLetterStore(state, s)
	default:
		if r.DeadLetters, err = d.buildDeadLetterSink(s); err != nil {
			return r, fmt.Errorf("sink %s: deadLetter: %w", s.Name, err)
		}
	}
	return r, nil
}

// DeadLetterStore returns the dead-letter store of a sink, even if the sink's configuration no longer has a dead-letter
// file.
func DeadLetterStore(state string, s *config.Sink) *deadletter.Store {
	f := &deadletter.Store{Dir: filepath.Join(state, deadletter.Name(s.Name))}
	if s.DeadLetter != nil && s.DeadLetter.File != nil {
		f.MaxBytes = s.DeadLetter.File.MaxBytes
	}
	return f
}

// buildPayloads builds the object store for large data. It uses the connection of the NATS sink, or a new connection if
// claimCheck.nats is configured.
func (d *Destination) buildPayloads(s *config.Sink) sinks.PayloadStore {
	if s.ClaimCheck.NATS == nil {
		return d.Sink.(*nats.Sink).PayloadStore(*s.ClaimCheck) // validated: if nats is not set, the sink is NATS
	}
	cfg := nats.Config{Servers: *s.ClaimCheck.NATS, Prober: d.prober, Logger: d.log}
	store := nats.NewPayloadStore(cfg, *s.ClaimCheck)
	d.Closers = append(d.Closers, store.Close)
	return store
}

// buildDeadLetterSink builds a sink that writes dead letters to a topic or subject.
func (d *Destination) buildDeadLetterSink(s *config.Sink) (sinks.DeadLetters, error) {
	place := &s.DeadLetter.LetterPlace
	sink, err := s.Destination().Letters(s.Name, place).NewSink(d.prober, d.log) // the configuration was validated
	if err != nil {
		return nil, err
	}
	d.Closers = append(d.Closers, sink.Close)
	return &sinks.DeadLetterSink{Sink: sink, Where: place.String()}, nil
}

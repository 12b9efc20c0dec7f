package assemble

import (
	"fmt"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// Rejections returns how messages that the destination rejects are handled. It does no I/O.
func (d *Destination) Rejections(s *config.Sink) (r sinks.Rejections, err error) {
	r.Oversize = s.Oversize
	if s.Oversize == sinks.OutcomeClaimCheck {
		r.Payloads = d.buildPayloads(s)
	}
	if s.DeadLetter == nil {
		return r, nil
	}
	sink, err := s.Destination().Letters(s.Name, s.DeadLetter).NewSink(d.prober, d.log) // the configuration was validated
	if err != nil {
		return r, fmt.Errorf("sink %s: deadLetter: %w", s.Name, err)
	}
	d.Closers = append(d.Closers, sink.Close)
	r.DeadLetters = &sinks.DeadLetterSink{Sink: sink, Where: s.DeadLetter.String()}
	return r, nil
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

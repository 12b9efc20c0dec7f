package nats

import (
	"context"
	"maps"
	"slices"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
)

// Check implements [diagnose.Checker]. It does not start an embedded server, but checks whether the server could be
// started.
func (s *Sink) Check(ctx context.Context) (findings []diagnose.Finding) {
	if s.cfg.Embedded != nil && s.server == nil {
		return embedded.Check(*s.cfg.Embedded)
	}
	findings, destination := s.stream.Check(ctx)
	if destination != "" {
		s.destination = destination
	}
	return append(findings, s.checkControl(ctx)...)
}

// Preview implements [diagnose.Previewer]. It neither starts an embedded server nor sends requests to it.
func (s *Sink) Preview(ctx context.Context, m *event.Message, ask bool) (diagnose.Placement, error) {
	subject, err := s.appendSubject(nil, m)
	if err != nil {
		return diagnose.Placement{}, err
	}
	headers := newHeaders(&s.cfg)
	headers.ttl, headers.writer = s.cfg.Stream.deletionTTL(), s.headers.writer
	header := headers.set(m, 0)
	if headers.expects() {
		header.Set(jetstream.ExpectedLastSubjSeqHeader, "<sequence>")
	}
	msg := natsgo.Msg{Subject: string(subject), Header: header, Data: m.Body()}
	p := diagnose.Placement{
		Stream: s.cfg.Stream.Name, Subject: msg.Subject,
		Size: int64(msg.Size() - len(msg.Subject)), // as the server counts it
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		p.Headers = append(p.Headers, diagnose.Header{Name: name, Value: header[name][0]})
	}
	switch {
	case s.cfg.Embedded != nil:
		p.Limit = embedded.MaxPayload
	case ask:
		p.Limit, p.Unknown = s.stream.MaxMessage(ctx)
	}
	return p, nil
}

// Read implements [diagnose.Reader]. To read from the embedded server of a running bridge, use a sink that is
// configured with [Config.Client].
func (s *Sink) Read(ctx context.Context, o diagnose.ReadOptions, handle func(*diagnose.Record) error) error {
	if s.control != nil {
		return s.readBoth(ctx, o, handle)
	}
	return s.stream.Read(ctx, &s.client, o, handle)
}

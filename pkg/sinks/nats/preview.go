package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

var _ diagnose.Previewer = (*Sink)(nil)

// Preview implements [diagnose.Previewer]. An embedded server is not started, and not asked.
func (s *Sink) Preview(ctx context.Context, m *event.Message, ask bool) (diagnose.Placement, error) {
	subject, err := s.appendSubject(nil, m)
	if err != nil {
		return diagnose.Placement{}, err
	}
	headers := newHeaders(&s.cfg)
	headers.ttl = s.cfg.Stream.deletionTTL()
	header := headers.set(m)
	msg := natsgo.Msg{Subject: string(subject), Header: header, Data: m.Body()}
	p := diagnose.Placement{
		Stream: s.cfg.Stream.Name, Subject: msg.Subject,
		// As the server counts it; Size of the client counts the subject too.
		Size: int64(msg.Size() - len(msg.Subject) - len(msg.Reply)),
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		p.Headers = append(p.Headers, diagnose.Header{Name: name, Value: header[name][0]})
	}
	switch {
	case s.cfg.Embedded != nil:
		p.Limit = embeddedMaxPayload
	case ask:
		p.Limit, p.Unknown = s.largest(ctx)
	}
	return p, nil
}

// largest asks for the largest message that the server and the stream take, in bytes.
func (s *Sink) largest(ctx context.Context) (int64, error) {
	found, conn, t := s.checkServers(ctx)
	if conn == nil {
		var causes []error
		for _, f := range found {
			causes = append(causes, f.Err)
		}
		return 0, cmp.Or(errors.Join(causes...), ctx.Err())
	}
	defer conn.Close()
	limit := conn.MaxPayload()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return limit, err
	}
	watched, end := t.denials.during(ctx)
	stream, err := js.Stream(watched, s.cfg.Stream.Name)
	denial := end()
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.cfg.Stream.Create:
		return limit, nil // what would be created has no limit of its own
	case err != nil:
		return limit, s.streamError(err, denial)
	}
	config := stream.CachedInfo().Config
	if config.MaxMsgSize > 0 {
		limit = min(limit, int64(config.MaxMsgSize))
	}
	if err := s.unfit(&config); err != nil {
		return limit, fmt.Errorf("stream %s: %w", s.cfg.Stream.Name, err)
	}
	return limit, nil
}

package nats

import (
	"context"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Sink publishes to one stream. Like every sinks.Sink it is used by one goroutine.
type Sink struct {
	cfg     Config
	subject *event.Template
	client  natsconn.Client
	server  *embedded.Server // with Config.Embedded, once it runs
	stream  natscheck.Stream // as it is required

	answered  *natsgo.Conn     // the connection whose answers come to acks
	inbox     string           // prefix of the reply subjects
	acks      chan *natsgo.Msg // the server's answers
	ackPrefix []byte
	recheck   bool // look at the stream before the next batch

	info        *jetstream.StreamInfo // of the stream, as it was at the last check; nil before
	destination string                // the stream, as it was at the last check

	warned map[string]bool

	flight     flight
	headers    *headers
	text, body []byte
	msg        natsgo.Msg // of publish: memory that is used again
}

var (
	_ sinks.Sink         = (*Sink)(nil)
	_ sinks.Router       = (*Sink)(nil)
	_ diagnose.Checker   = (*Sink)(nil)
	_ diagnose.Previewer = (*Sink)(nil)
	_ diagnose.Reader    = (*Sink)(nil)
)

// New checks cfg and returns a sink that is not connected yet. It does no I/O. The error names every mistake.
func New(cfg Config) (*Sink, error) {
	subject, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	s := &Sink{
		cfg: cfg, subject: subject,
		ackPrefix: ackPrefix(cfg.Stream.Name),
		// Room for every answer that can be on its way, late ones of a given up batch included.
		acks:    make(chan *natsgo.Msg, 4*cfg.MaxInFlight),
		warned:  make(map[string]bool),
		headers: newHeaders(&cfg),
	}
	s.client.Access = natsconn.Access{URLs: cfg.URLs, Auth: cfg.Auth, TLS: cfg.TLS, Timeout: cfg.AckTimeout}
	s.client.Lost = make(chan error, 1)
	s.client.Forbidden = make(chan string, cfg.MaxInFlight)
	if cfg.Embedded == nil {
		s.client.Prober = cfg.Prober
	}
	s.stream = natscheck.Stream{
		Access:   &s.client.Access,
		Config:   cfg.jetstream(subject.Wildcard()),
		Create:   cfg.Stream.Create,
		Wildcard: subject.Wildcard(),
		Embedded: cfg.Embedded != nil,
	}
	return s, nil
}

// Connect implements sinks.Sink: it starts the embedded server if there is one, connects, and finds the stream fit
// or creates it.
func (s *Sink) Connect(ctx context.Context) error {
	if s.cfg.Embedded != nil && s.server == nil {
		server, err := embedded.Start(*s.cfg.Embedded, s.cfg.Logger)
		if err != nil {
			return fmt.Errorf("embedded nats-server: %w", err)
		}
		s.server, s.client.URLs = server, []string{server.ClientURL()}
	}
	if err := s.client.Connect(ctx); err != nil {
		return err
	}
	if conn := s.client.Conn(); conn != s.answered {
		s.inbox = conn.NewInbox() + "."
		if _, err := conn.ChanSubscribe(s.inbox+"*", s.acks); err != nil {
			return fmt.Errorf("subscribe to the inbox: %w", err)
		}
		s.answered = conn
	}
	if err := s.checkStream(ctx); err != nil {
		return err
	}
	s.recheck = false
	return nil
}

// Close implements sinks.Sink. It stops the embedded server too.
func (s *Sink) Close(ctx context.Context) error {
	s.client.Close(ctx)
	if s.server != nil {
		s.server.Stop()
		s.server = nil
	}
	return nil
}

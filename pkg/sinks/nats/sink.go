package nats

import (
	"context"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsack"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// checkEvery is the interval at which a sink that is never idle checks the stream. If the stream is created again, and
// others write to it first, acknowledgements do not show this.
const checkEvery = 15 * time.Second

// Sink publishes to one stream. Like every sinks.Sink, it must be used by only one goroutine.
type Sink struct {
	cfg     Config
	subject *event.Template
	client  natsconn.Client
	server  *embedded.Server // the running embedded server; nil without Config.Embedded
	stream  natscheck.Stream // what the sink requires of the stream
	control *Sink            // the sink for control events; nil if they go to the stream of the objects

	answered *natsgo.Conn     // the connection whose answers are sent to acks
	inbox    string           // prefix of the reply subjects
	acks     chan *natsgo.Msg // answers of the server
	answers  natsack.Reader
	route    string    // the prefix of the subjects of messages; see natsconn.Access
	recheck  bool      // the stream must be checked before the next batch
	checked  time.Time // when it was checked last

	info        *jetstream.StreamInfo // the stream at the last check; nil before the first check
	destination string                // identity of the stream at the last check

	warned map[string]bool

	resume   *sinks.Resume // nil if Resume was not called
	progress progress
	found    sinks.Found // what earlier processes wrote to a stream that keeps all messages
	latest   latest
	lastWins bool // messages cannot be looked up, so the last writer of a subject wins

	flight     flight
	headers    *headers
	text, body []byte
	msg        natsgo.Msg // reused by publish
}

var (
	_ sinks.Sink         = (*Sink)(nil)
	_ diagnose.Checker   = (*Sink)(nil)
	_ diagnose.Previewer = (*Sink)(nil)
	_ diagnose.Reader    = (*Sink)(nil)
)

// New returns a sink that is not connected yet. The configuration must be valid. New does no I/O.
func New(cfg Config) *Sink {
	subject := cfg.Place()
	cfg.complete()
	s := &Sink{
		cfg: cfg, subject: subject,
		answers: natsack.NewReader(cfg.Stream.Name, cfg.Domain), route: cfg.Route(cfg.Subject),
		// acks has room for all answers that can be on their way, including late answers to a batch that was given up.
		acks:    make(chan *natsgo.Msg, 4*cfg.MaxInFlight),
		warned:  make(map[string]bool),
		headers: newHeaders(&cfg),
		control: newControl(&cfg),
	}
	s.client.Access, s.client.Prober = cfg.Servers, cfg.Prober
	s.client.Lost = make(chan error, 1)
	s.client.Forbidden = make(chan string, cfg.MaxInFlight)
	s.stream = natscheck.Stream{
		Access:   &s.client.Access,
		Config:   cfg.jetstream(subject.Wildcard()),
		Create:   cfg.Stream.Create,
		Wildcard: subject.Wildcard(),
		Letters:  cfg.LettersOf != "",

		DeletionsKeptFor: cfg.Stream.DeletionsKeptFor,
	}
	return s
}

// Connect implements sinks.Sink. It starts the embedded server if one is configured, connects, and checks the stream.
// If the stream does not exist, Connect creates it if the configuration allows that.
func (s *Sink) Connect(ctx context.Context) error {
	s.recheck = true
	return s.prepare(ctx)
}

// prepare connects if the sink is not connected, and checks the stream again if necessary. If prepare fails, nothing
// was sent.
func (s *Sink) prepare(ctx context.Context) error {
	if s.cfg.Embedded != nil && s.server == nil {
		server, err := embedded.Start(*s.cfg.Embedded, s.cfg.Logger)
		if err != nil {
			return fmt.Errorf("embedded nats-server: %w", err)
		}
		s.server, s.client.URLs = server, []string{server.ClientURL()}
		if s.control != nil {
			s.control.client.URLs = s.client.URLs
		}
	}
	if err := s.client.Connect(ctx); err != nil {
		return err
	}
	if conn := s.client.Conn(); conn != s.answered {
		s.inbox = conn.NewInbox() + "."
		if _, err := conn.ChanSubscribe(s.inbox+"*", s.acks); err != nil {
			return fmt.Errorf("subscribe to the inbox: %w", err)
		}
		s.answered, s.recheck = conn, true
	}
	if len(s.client.Lost) > 0 {
		s.progress.failing = time.Time{} // without a connection, nothing can be read
	}
	discard(s.client.Lost)      // errors of a connection that was already replaced
	discard(s.client.Forbidden) // denials for a batch that was given up
	discard(s.acks)             // answers to messages that were given up
	if s.recheck || time.Since(s.checked) >= checkEvery {
		s.lastWins = false
		if err := s.checkStream(ctx); err != nil {
			return err
		}
		if err := s.readBack(ctx); err != nil {
			return err
		}
		s.recheck, s.checked = false, time.Now()
	}
	return nil
}

// discard removes all values that are currently in a channel.
func discard[T any](ch chan T) {
	for n := len(ch); n > 0; n-- {
		<-ch
	}
}

// Close implements sinks.Sink. It also stops the embedded server.
func (s *Sink) Close(ctx context.Context) error {
	if s.control != nil {
		s.control.client.Close(ctx)
	}
	s.client.Close(ctx)
	if s.server != nil {
		s.server.Stop()
		s.server = nil
	}
	return nil
}

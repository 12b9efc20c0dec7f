package nats

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	connectTimeout = 5 * time.Second // for one server: TCP, TLS and the greeting; TCP alone has reach.Timeout
	reportAfter    = time.Second     // that a connection was lost is reported when it is not back by then
	writeTimeout   = 10 * time.Second
	pingInterval   = 10 * time.Second // two without an answer end the connection
)

// Sink publishes to one stream. Like every sinks.Sink it is used by one goroutine.
type Sink struct {
	cfg     Config
	subject *event.Template
	dial    dialer
	server  *embedded // with Config.Embedded, once it runs
	conn    *natsgo.Conn
	seed    [sha256.Size]byte // the stamp of the nkey that conn uses
	denials *denials

	inbox     string           // prefix of the reply subjects
	acks      chan *natsgo.Msg // the server's answers
	ackPrefix []byte
	lost      chan error                  // the connection broke
	up        chan struct{}               // it is back
	current   atomic.Pointer[natsgo.Conn] // conn, for nats.go's goroutine that reconnects
	recheck   bool                        // look at the stream before the next batch
	found     bool                        // the stream has been there
	subjects  []string                    // of the stream, when it was last looked at
	forbidden chan string                 // subjects that the server did not allow to publish to

	destination string // the stream, when it was last looked at
	replicas    int    // that it has

	warned map[string]bool

	flight     flight
	headers    *headers
	text, body []byte
	msg        natsgo.Msg // of publish: memory that is used again
	duplicates atomic.Int64
}

var (
	_ sinks.Sink   = (*Sink)(nil)
	_ sinks.Router = (*Sink)(nil)
)

// New checks cfg and returns a sink that is not connected yet. It does no I/O. The error names every mistake.
func New(cfg Config) (*Sink, error) {
	subject, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &Sink{
		cfg: cfg, subject: subject,
		ackPrefix: ackPrefix(cfg.Stream.Name),
		// Room for every answer that can be on its way, late ones of a given up batch included.
		acks:      make(chan *natsgo.Msg, 4*cfg.MaxInFlight),
		lost:      make(chan error, 1),
		up:        make(chan struct{}, 1),
		forbidden: make(chan string, cfg.MaxInFlight),
		warned:    make(map[string]bool),
		denials:   new(denials),
		headers:   newHeaders(&cfg),
	}, nil
}

// Duplicates counts the messages that the stream had already, under the same id. They count as delivered.
func (s *Sink) Duplicates() int64 { return s.duplicates.Load() }

// Connect implements sinks.Sink: it starts the embedded server if there is one, connects, and finds the stream fit
// or creates it.
func (s *Sink) Connect(ctx context.Context) error {
	if s.cfg.Embedded != nil && s.server == nil {
		server, err := startEmbedded(*s.cfg.Embedded, s.cfg.Logger)
		if err != nil {
			return fmt.Errorf("embedded nats-server: %w", err)
		}
		s.server = server
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.checkStream(ctx); err != nil {
		return err
	}
	s.recheck = false
	return nil
}

// connect makes the connection and the inbox for the answers, unless they are there.
func (s *Sink) connect(ctx context.Context) error {
	if s.conn != nil && !s.conn.IsClosed() {
		return s.awaitConnection(ctx)
	}
	s.seed = s.cfg.Auth.stamp()
	opts, err := s.options()
	if err != nil {
		return err
	}
	urls := s.urls()
	s.denials.forget()
	if s.server == nil {
		addr, err := access.Reach(ctx, s.cfg.Prober, addresses(s.cfg.URLs), func(addr string, err error) error {
			return fmt.Errorf("nats server %w", access.DialError(ctx, addr, "nats.url", reach.Timeout, err))
		})
		if err != nil {
			return err
		}
		s.dial.prefer(addr)
	}
	s.dial.begin(ctx)
	stop := context.AfterFunc(ctx, s.dial.interrupt)
	conn, err := natsgo.Connect(urls, opts...)
	stop()
	s.dial.end()
	if err != nil {
		return s.diagnose(ctx, fmt.Errorf("connect to %s: %w", redacted(urls), err))
	}
	s.inbox = conn.NewInbox() + "."
	if _, err := conn.ChanSubscribe(s.inbox+"*", s.acks); err != nil {
		conn.Close()
		return fmt.Errorf("subscribe to the inbox: %w", err)
	}
	s.conn = conn
	s.current.Store(conn)
	return nil
}

// awaitConnection returns nil once the client is connected. It waits for a reconnection for a while, and then until it has found
// out why there is none.
func (s *Sink) awaitConnection(ctx context.Context) error {
	if s.conn.IsConnected() {
		return nil
	}
	if s.cfg.Auth.NkeyFile != "" && s.cfg.Auth.stamp() != s.seed {
		s.conn.Close()
		return s.connect(ctx)
	}
	timeout := time.NewTimer(min(reportAfter, s.cfg.AckTimeout))
	defer timeout.Stop()
	trying, stop := context.WithCancel(ctx)
	defer stop()
	var diagnosis chan error // nil until the timeout
	for {
		select {
		case <-s.up:
			if !s.conn.IsConnected() {
				continue
			}
			if stop(); diagnosis != nil {
				<-diagnosis //nolint:errcheck // it does not matter any more
			}
			return nil
		case <-timeout.C:
			diagnosis = make(chan error, 1)
			go func() {
				diagnosis <- s.diagnose(trying, fmt.Errorf("not connected to %s: %w", redacted(s.urls()), s.dial.cause()))
			}()
		case err := <-diagnosis:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close implements sinks.Sink. It stops the embedded server too.
func (s *Sink) Close(ctx context.Context) error {
	if s.conn != nil {
		stop := context.AfterFunc(ctx, s.dial.interrupt) // closing flushes, which a hanging server would hold up
		s.conn.Close()
		stop()
	}
	if s.server != nil {
		s.server.stop()
		s.server = nil
	}
	return nil
}

func (s *Sink) urls() string {
	if s.server != nil {
		return s.server.url()
	}
	return strings.Join(s.cfg.URLs, ",")
}

// reconnectDelay is how long nats.go waits before it tries its servers again, after all of them failed. It waits until one of
// them accepts a connection; ctx ends with the connection.
func (s *Sink) reconnectDelay(ctx context.Context, failed int) time.Duration {
	if s.dial.refused() {
		return min(reach.Interval<<min(failed, 10), sinks.DefaultBackoffMax)
	}
	urls := s.cfg.URLs
	if conn := s.current.Load(); conn != nil {
		urls = conn.Servers() // also those that a server named
	}
	if s.cfg.Embedded != nil || len(urls) == 0 {
		return reach.Interval
	}
	ctx, cancel := context.WithTimeout(ctx, sinks.DefaultBackoffMax) // there may be another list by then
	defer cancel()
	start := time.Now()
	if addr, err := s.cfg.Prober.Wait(ctx, addresses(urls)...); err == nil {
		s.dial.prefer(addr)
	}
	return max(0, reach.Interval-time.Since(start))
}

// addresses are host:port of the servers.
func addresses(urls []string) []string {
	out := make([]string, 0, len(urls))
	for _, raw := range urls {
		if _, addr, err := serverAddress(raw); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// options are the client's. It never gives up, and it buffers nothing while it is away.
func (s *Sink) options() ([]natsgo.Option, error) {
	life, end := context.WithCancel(context.Background()) // of the connection
	opts := []natsgo.Option{
		natsgo.Name("deltabridge"),
		natsgo.MaxReconnects(-1),
		natsgo.IgnoreAuthErrorAbort(), // credentials can be mended while we run
		natsgo.CustomReconnectDelay(func(failed int) time.Duration { return s.reconnectDelay(life, failed) }),
		natsgo.ClosedHandler(func(*natsgo.Conn) { end() }),
		natsgo.SkipHostLookup(), // the dialer tries all addresses of a host at once
		natsgo.ReconnectBufSize(-1),
		natsgo.Timeout(connectTimeout),
		natsgo.FlusherTimeout(writeTimeout),
		natsgo.PingInterval(pingInterval),
		natsgo.SetCustomDialer(&s.dial),
		natsgo.SkipSubjectValidation(), // the template escapes what a subject may not hold
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
			if err == nil {
				err = natsgo.ErrDisconnected
			}
			s.dial.note(err)
			tell(s.lost, err)
		}),
		natsgo.ReconnectHandler(func(*natsgo.Conn) { tell(s.up, struct{}{}) }),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { s.dial.note(err) }),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			s.dial.note(err)
			s.denials.note(err)
			if subject := forbiddenSubject(err); subject != "" {
				tell(s.forbidden, subject)
			}
		}),
	}
	session, err := s.cfg.TLS.NewSession(tlsSection)
	if err != nil {
		end()
		return nil, err
	}
	more, err := s.accessOptions(session, s.cfg.TLS.IsSet())
	if err != nil {
		end()
		return nil, err
	}
	return append(opts, more...), nil
}

// accessOptions are those for authentication and TLS.
func (s *Sink) accessOptions(session *access.Session, secured bool) ([]natsgo.Option, error) {
	auth, err := s.cfg.Auth.options()
	if err != nil || !secured {
		return auth, err
	}
	secure, err := tlsOptions(session, s.cfg.TLS.IsSet())
	if err != nil {
		return nil, err
	}
	return append(auth, secure...), nil
}

// tell sends v unless a value is waiting already.
func tell[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

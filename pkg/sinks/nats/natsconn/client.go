package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	reportAfter  = time.Second // a lost connection is reported if reconnecting takes longer
	writeTimeout = 10 * time.Second
	pingInterval = 10 * time.Second // the connection ends after two pings without an answer
)

// Client is a long-lived connection. It must be used by only one goroutine. Set the fields before the first Connect.
type Client struct {
	Access
	// Prober detects when a server is available again. If it is nil, which is the case for an embedded server, the client
	// dials the servers itself.
	Prober *reach.Prober
	// Lost receives the error that broke the connection, unless the channel is full. It may be nil.
	Lost chan error

	Denials

	conn    *natsgo.Conn
	current atomic.Pointer[natsgo.Conn] // conn, for the reconnecting goroutine of nats.go
	who     string                      // identity of the client of conn, as the server knows it
	dial    dialer
	up      chan struct{} // receives a value after every reconnection
}

// Conn returns the current connection. It is nil before the first Connect, and it may be closed. If Connect can't reuse
// the connection, it replaces the connection.
func (c *Client) Conn() *natsgo.Conn { return c.conn }

// Connect returns nil once the client is connected.
func (c *Client) Connect(ctx context.Context) error {
	if c.conn != nil && !c.conn.IsClosed() {
		return c.await(ctx)
	}
	c.who = c.Auth.Who()
	opts, err := c.options()
	if err != nil {
		return err
	}
	c.Forget()
	if c.Prober != nil {
		addr, err := access.Reach(ctx, c.Prober, addresses(c.URLs), func(addr string, err error) error {
			return fmt.Errorf("nats server %w", access.DialError(ctx, addr, "nats.url", reach.Timeout, err))
		})
		if err != nil {
			return err
		}
		c.dial.best.Store(addr)
	}
	conn, err := c.dial.connect(ctx, strings.Join(c.URLs, ","), opts)
	if err != nil {
		return c.diagnose(ctx, err)
	}
	c.conn = conn
	c.current.Store(conn)
	return nil
}

// await waits until the connection is established again. If that takes too long, it also tries every server, and
// returns the causes if no server can be used. It tries them in the background, because a server that does not respond
// must not delay the return if another one does.
func (c *Client) await(ctx context.Context) error {
	if c.conn.IsConnected() {
		return nil
	}
	if c.Auth.NkeyFile != "" && c.Auth.Who() != c.who { // nats.go reads all other credentials again
		c.conn.Close()
		return c.Connect(ctx)
	}
	timeout := time.NewTimer(min(reportAfter, c.Timeout))
	defer timeout.Stop()
	trying, stop := context.WithCancel(ctx)
	defer stop()
	var diagnosis chan error // nil before the timeout
	for {
		select {
		case <-c.up:
			if !c.conn.IsConnected() {
				continue
			}
			if stop(); diagnosis != nil {
				<-diagnosis //nolint:errcheck // it does not matter any more
			}
			return nil
		case <-timeout.C:
			diagnosis = make(chan error, 1)
			go func() { diagnosis <- c.diagnose(trying, cmp.Or(c.LastError(), natsgo.ErrDisconnected)) }()
		case err := <-diagnosis:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Interrupt ends a blocked read or write of the connection. The client then reconnects.
func (c *Client) Interrupt() { c.dial.interrupt() }

// LastError returns the last error. It returns nil if there was no error since the client connected.
func (c *Client) LastError() error { return c.dial.lastError() }

// Close ends the connection.
func (c *Client) Close(ctx context.Context) {
	if c.conn == nil {
		return
	}
	defer context.AfterFunc(ctx, c.Interrupt)() // Close flushes the connection, and a hanging server would block that
	c.conn.Close()
}

// diagnose tries every server and returns the causes if no server can be used. If a server can be used, it returns err.
func (c *Client) diagnose(ctx context.Context, err error) error {
	t, _, cause := c.First(ctx)
	if t == nil {
		return cause
	}
	t.Conn.Close()
	return cmp.Or(ctx.Err(), fmt.Errorf("not connected to %s: %w", strings.Join(addresses(c.URLs), ","), err))
}

// reconnectDelay returns how long nats.go waits before it tries its servers again after all of them failed. Before it
// returns, it waits until a server accepts a connection. ctx ends when the connection is closed.
func (c *Client) reconnectDelay(ctx context.Context, failed int) time.Duration {
	if isAuthError(c.LastError()) {
		return min(reach.Interval<<min(failed, 10), sinks.MaxBackoff)
	}
	urls := c.URLs
	if conn := c.current.Load(); conn != nil {
		urls = conn.Servers() // includes servers that the configured servers announced
	}
	if c.Prober == nil || len(urls) == 0 {
		return reach.Interval
	}
	ctx, cancel := context.WithTimeout(ctx, sinks.MaxBackoff) // the list of servers may change during the wait
	defer cancel()
	start := time.Now()
	if addr, _ := c.Prober.Wait(ctx, addresses(urls)...); addr != "" {
		c.dial.best.Store(addr)
	}
	return max(0, reach.Interval-time.Since(start))
}

func isAuthError(err error) bool {
	return errors.Is(err, natsgo.ErrAuthorization) || errors.Is(err, natsgo.ErrAuthExpired) ||
		errors.Is(err, natsgo.ErrAuthRevoked) || errors.Is(err, natsgo.ErrAccountAuthExpired)
}

// options returns the nats.go options of a client that never gives up reconnecting, and that buffers nothing while it
// is disconnected.
func (c *Client) options() ([]natsgo.Option, error) {
	session, err := c.TLS.NewSession(tlsSection)
	if err != nil {
		return nil, err
	}
	opts, err := c.Access.options(session)
	if err != nil {
		return nil, err
	}
	if c.up == nil {
		c.up = make(chan struct{}, 1)
	}
	life, end := context.WithCancel(context.Background()) // ends when the connection is closed
	return append(opts,
		natsgo.Name("deltabridge"),
		natsgo.MaxReconnects(-1),
		natsgo.IgnoreAuthErrorAbort(), // credentials can be corrected while the bridge runs
		natsgo.CustomReconnectDelay(func(failed int) time.Duration { return c.reconnectDelay(life, failed) }),
		natsgo.ClosedHandler(func(*natsgo.Conn) { end() }),
		natsgo.SkipHostLookup(), // the dialer tries all addresses of a host at once
		natsgo.ReconnectBufSize(-1),
		natsgo.Timeout(connectTimeout),
		natsgo.FlusherTimeout(writeTimeout),
		natsgo.PingInterval(pingInterval),
		natsgo.SkipSubjectValidation(), // the template already escapes characters that a subject can't contain
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
			if err == nil {
				err = natsgo.ErrDisconnected
			}
			c.dial.note(err)
			Offer(c.Lost, err)
		}),
		natsgo.ReconnectHandler(func(*natsgo.Conn) { Offer(c.up, struct{}{}) }),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { c.dial.note(err) }),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			c.dial.note(err)
			c.note(err)
		}),
	), nil
}

// Offer sends v unless the channel is full.
func Offer[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

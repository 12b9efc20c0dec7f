package natsconn

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
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

	conn atomic.Pointer[natsgo.Conn] // also used by the reconnecting goroutine of nats.go
	who  string                      // identity of the client of conn, as the server knows it
	dial dialer
}

// Conn returns the current connection. It is nil before the first Connect, and it may be closed. If Connect can't reuse
// the connection, it replaces the connection.
func (c *Client) Conn() *natsgo.Conn { return c.conn.Load() }

// Connect returns nil once the client is connected.
func (c *Client) Connect(ctx context.Context) error {
	if conn := c.Conn(); conn != nil && !conn.IsClosed() {
		return c.await(ctx, conn)
	}
	c.who = c.Auth.Who()
	opts, _, err := c.Access.options()
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
		c.dial.prefer(addr)
	}
	conn, err := c.dial.connect(ctx, strings.Join(c.URLs, ","), append(opts, c.options()...))
	if err != nil {
		return c.diagnose(ctx, err)
	}
	c.conn.Store(conn)
	return nil
}

// await waits until the connection is established again. If that takes too long, it also tries every server, and
// returns the causes if no server can be used. It tries them in the background, because a server that does not respond
// must not delay the return if another one does.
func (c *Client) await(ctx context.Context, conn *natsgo.Conn) error {
	if conn.IsConnected() {
		return nil
	}
	if c.Auth.NkeyFile != "" && c.Auth.Who() != c.who { // nats.go reads all other credentials again
		conn.Close()
		return c.Connect(ctx)
	}
	up := conn.StatusChanged(natsgo.CONNECTED)
	defer conn.RemoveStatusListener(up)
	var diagnosing sync.WaitGroup
	defer diagnosing.Wait()
	trying, stop := context.WithCancel(ctx)
	defer stop()
	timeout, diagnosis := time.After(min(reportAfter, c.Timeout)), make(chan error, 1)
	for !conn.IsConnected() {
		select {
		case <-up:
		case <-timeout:
			diagnosing.Go(func() { diagnosis <- c.diagnose(trying, cmp.Or(conn.LastError(), natsgo.ErrDisconnected)) })
		case err := <-diagnosis:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Interrupt ends a blocked read or write of the connection. The client then reconnects.
func (c *Client) Interrupt() { c.dial.interrupt() }

// Close ends the connection.
func (c *Client) Close(ctx context.Context) {
	if conn := c.Conn(); conn != nil {
		defer context.AfterFunc(ctx, c.Interrupt)() // Close flushes, and a hanging server would block that
		conn.Close()
	}
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
	urls := c.URLs
	if conn := c.Conn(); conn != nil {
		if isAuthError(conn.LastError()) {
			return min(reach.Interval<<min(failed, 10), sinks.MaxBackoff)
		}
		urls = conn.Servers() // includes servers that the configured servers announced
	}
	if c.Prober == nil || len(urls) == 0 {
		return reach.Interval
	}
	ctx, cancel := context.WithTimeout(ctx, sinks.MaxBackoff) // the list of servers may change during the wait
	defer cancel()
	start := time.Now()
	if addr, _ := c.Prober.Wait(ctx, addresses(urls)...); addr != "" {
		c.dial.prefer(addr)
	}
	return max(0, reach.Interval-time.Since(start))
}

// options returns the nats.go options of a client that never gives up reconnecting, and that buffers nothing while it
// is disconnected.
func (c *Client) options() []natsgo.Option {
	life, end := context.WithCancel(context.Background()) // ends when the connection is closed
	return []natsgo.Option{
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
			offer(c.Lost, cmp.Or(err, natsgo.ErrDisconnected))
		}),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { c.note(err) }),
	}
}

// offer sends v unless the channel is full.
func offer[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

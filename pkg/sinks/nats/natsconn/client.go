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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	reportAfter  = time.Second // if connecting takes longer, await looks for the causes
	writeTimeout = 10 * time.Second
	pingInterval = 10 * time.Second // the connection ends after two pings without an answer
)

// Client is a long-lived connection. It must be used by only one goroutine. Set the fields before the first Connect.
type Client struct {
	Access
	// Prober detects when a server is available again.
	Prober *reach.Prober
	// Lost receives the error that broke the connection, unless the channel is full. It may be nil.
	Lost chan error

	Denials

	conn atomic.Pointer[natsgo.Conn] // also used by the reconnecting goroutine of nats.go
	js   jetstream.JetStream         // the API of JetStream over conn
	who  string                      // identity of the client of conn, as the server knows it
	dial dialer
}

// Conn returns the current connection. It is nil before the first Connect, and it may be closed or not established. If
// Connect can't reuse the connection, it replaces the connection.
func (c *Client) Conn() *natsgo.Conn { return c.conn.Load() }

// JetStream returns the API of JetStream over the current connection. It must not be called before Connect.
func (c *Client) JetStream() jetstream.JetStream { return c.js }

// Connect returns nil once the client is connected. After an error, the client may continue to connect in the
// background until it is closed.
func (c *Client) Connect(ctx context.Context) error {
	defer c.EndWith(ctx)()
	conn := c.Conn()
	if conn != nil && conn.IsConnected() {
		return nil
	}
	if conn != nil && c.Auth.NkeyFile != "" && c.Auth.Who() != c.who { // nats.go reads all other credentials again
		conn.Close()
	}
	if conn == nil || conn.IsClosed() {
		if err := c.open(); err != nil {
			return err
		}
	}
	return c.await(ctx, c.Conn())
}

// open replaces the connection with a new one, which nats.go establishes in the background.
func (c *Client) open() error {
	c.who = c.Auth.Who()
	opts, _, err := c.Access.options()
	if err != nil {
		return err
	}
	c.forget()
	c.conn.Store(nil)
	c.dial.prefer("")
	conn, err := natsgo.Connect(strings.Join(c.URLs, ","), append(opts, c.options()...)...)
	if err != nil {
		return err
	}
	c.conn.Store(conn)
	c.js, err = c.jetStream(conn)
	return err
}

// await waits until the connection is established. If that takes too long, it also tries every server, and returns the
// causes if no server can be used. It tries the servers in the background, because a server that does not respond must
// not delay the return if another server responds.
func (c *Client) await(ctx context.Context, conn *natsgo.Conn) error {
	up := conn.StatusChanged(natsgo.CONNECTED)
	defer conn.RemoveStatusListener(up)
	var diagnosing sync.WaitGroup
	defer diagnosing.Wait()
	trying, stop := context.WithCancel(ctx)
	defer stop()
	patience := min(reportAfter, c.Timeout)
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	timeout, diagnosis := time.After(patience), make(chan error, 1)
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

// EndWith ensures that an operation on the connection ends soon after ctx: while nats.go waits for a server that does
// not respond, all methods of the connection block. Call done when the operation has ended. If ctx ended before, the
// client reconnects.
func (c *Client) EndWith(ctx context.Context) (done func()) { return c.dial.endWith(ctx) }

// Close ends the connection.
func (c *Client) Close(ctx context.Context) {
	if conn := c.Conn(); conn != nil {
		defer c.EndWith(ctx)() // Close flushes, and a hanging server would block that
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
	ctx, cancel := context.WithTimeout(ctx, sinks.MaxBackoff) // the list of servers may change during the wait
	defer cancel()
	start := time.Now()
	if addr, _ := c.Prober.Wait(ctx, addresses(urls)...); addr != "" {
		c.dial.prefer(addr)
	}
	if failed == 1 {
		return 0
	}
	return max(0, reach.Interval-time.Since(start))
}

// options returns the nats.go options of a client that never gives up reconnecting, and that buffers nothing while it
// is disconnected.
func (c *Client) options() []natsgo.Option {
	life, end := context.WithCancel(context.Background()) // ends when the connection is closed
	return []natsgo.Option{
		natsgo.Name(cmp.Or(c.ConnectionName, "deltabridge")),
		natsgo.SetCustomDialer(&c.dial),
		natsgo.RetryOnFailedConnect(true),
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

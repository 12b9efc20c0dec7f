package nats

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// dialer opens the client's TCP connections. It keeps two things that nats.go gives no access to: the connection,
// so that a blocked write can be ended, and the cause of the last failure, which ErrNoServers hides.
type dialer struct {
	mu   sync.Mutex
	ctx  context.Context // of the Connect under way; nil while nats.go reconnects by itself
	best string          // accepted a connection just now; empty: not known
	conn net.Conn
	err  error
}

// prefer says which address accepted a connection just now.
func (d *dialer) prefer(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.best = address
}

// begin says under which context the next connections are opened; nil for none.
func (d *dialer) begin(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.err = ctx, nil
}

// end says that what was begun is over: later connections are the client's own.
func (d *dialer) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx = nil
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx, timeout := d.ctx, connectTimeout
	if d.best != "" && d.best != address { // nats.go tries one server after the other: the best must not wait for one that is away
		timeout = reach.Interval
	}
	d.mu.Unlock()
	if ctx == nil {
		ctx = context.Background() // ends by the timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := reach.Dial(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	if err == nil {
		d.conn = conn
	}
	return conn, err
}

// interrupt closes the present connection, which ends a read or write that blocks. nats.go then reconnects.
func (d *dialer) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// note keeps err as the cause of what fails next.
func (d *dialer) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.err = err
	}
}

func (d *dialer) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// refused reports whether a server refused the credentials the last time.
func (d *dialer) refused() bool {
	err := d.lastError()
	return errors.Is(err, natsgo.ErrAuthorization) || errors.Is(err, natsgo.ErrAuthExpired) || errors.Is(err, natsgo.ErrAuthRevoked) ||
		errors.Is(err, natsgo.ErrAccountAuthExpired)
}

// cause is the last error, or that there is no connection.
func (d *dialer) cause() error {
	if err := d.lastError(); err != nil {
		return err
	}
	return natsgo.ErrDisconnected
}

// redacted hides users, passwords and tokens in a list of URLs.
func redacted(urls string) string {
	out := strings.Split(urls, ",")
	for i, u := range out {
		if parsed, err := url.Parse(u); err == nil && parsed.User != nil {
			parsed.User = url.User("xxxxx")
			out[i] = parsed.String()
		}
	}
	return strings.Join(out, ",")
}

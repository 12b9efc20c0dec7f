package natsconn

import (
	"context"
	"errors"
	"net"
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
	wrap func(net.Conn) net.Conn // puts something around each connection; nil: nothing
}

// prefer says which address accepted a connection just now.
func (d *dialer) prefer(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.best = address
}

// connect calls nats.go with ctx, whose end interrupts it. The error is the cause.
func (d *dialer) connect(ctx context.Context, url string, opts []natsgo.Option) (*natsgo.Conn, error) {
	d.begin(ctx)
	defer d.end()
	defer context.AfterFunc(ctx, d.interrupt)()
	conn, err := natsgo.Connect(url, append(opts, natsgo.SetCustomDialer(d))...)
	if cause := d.lastError(); cause != nil && errors.Is(err, natsgo.ErrNoServers) {
		err = cause
	}
	return conn, err
}

func (d *dialer) begin(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.err = ctx, nil
}

// end says that later connections are the client's own.
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
		if d.wrap != nil {
			conn = d.wrap(conn)
		}
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

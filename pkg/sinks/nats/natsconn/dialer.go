package natsconn

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// dialer opens the TCP connections of a client, and can close them to end a blocked read or write.
type dialer struct {
	mu   sync.Mutex
	best string // the address that accepted a connection most recently; empty before the first one
	conn net.Conn
	// ended is the number of running operations whose context has ended. Meanwhile the dialer opens no connection: nats.go
	// would wait for the greeting of a server that hangs, and hold its lock.
	ended int
	stop  context.CancelFunc // ends the last Dial; nil before the first one
}

// errNotProbed is the error of the first attempt, which is the only one that nats.go makes before it returns the
// connection.
var errNotProbed = errors.New("no server has accepted a connection yet")

// errEnded is the error of Dial while an operation has to end.
var errEnded = errors.New("the operation has ended")

// prefer sets the address that is available.
func (d *dialer) prefer(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.best = address
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel, err := d.begin(address)
	if err != nil {
		return nil, err
	}
	defer cancel()
	conn, err := reach.Dial(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case d.ended > 0:
		_ = conn.Close()
		return nil, errEnded
	}
	d.conn = conn
	return conn, nil
}

// begin returns the context for dialing.
func (d *dialer) begin(address string) (ctx context.Context, cancel context.CancelFunc, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.best == "":
		return nil, nil, errNotProbed
	case d.ended > 0:
		return nil, nil, errEnded
	}
	timeout := connectTimeout
	if d.best != address {
		// nats.go tries the servers one after another, so an unavailable server must not delay the best one for long.
		timeout = reach.Interval
	}
	ctx, cancel = context.WithTimeout(context.Background(), timeout)
	d.stop = cancel
	return ctx, cancel, nil
}

// endWith closes the connection when ctx ends, which ends any blocked read or write, and opens no other until the
// operation of ctx has ended. Call done then. nats.go reconnects in the background.
func (d *dialer) endWith(ctx context.Context) (done func()) {
	stop := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended++
		if d.stop != nil {
			d.stop()
		}
		if d.conn != nil {
			_ = d.conn.Close()
		}
	})
	return func() {
		if stop() {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended-- // the function above may run only now
	}
}

// opened is a connection that is open already. nats.go takes it instead of dialing.
type opened struct{ net.Conn }

// Dial implements nats.CustomDialer.
func (o opened) Dial(string, string) (net.Conn, error) { return o.Conn, nil }

package natsconn

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// dialer opens the TCP connections of a client, and can close the current one to end a blocked write.
type dialer struct {
	mu   sync.Mutex
	best string // the address that accepted a connection most recently; empty before the first one
	conn net.Conn
}

// errNotProbed is the error of the first attempt, which is the only one that nats.go makes before it returns the
// connection.
var errNotProbed = errors.New("no server has accepted a connection yet")

// prefer sets the address that is available.
func (d *dialer) prefer(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.best = address
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	best, timeout := d.best, connectTimeout
	d.mu.Unlock()
	if best == "" {
		return nil, errNotProbed
	}
	if best != address {
		// nats.go tries the servers one after another, so an unavailable server must not delay the best one for long.
		timeout = reach.Interval
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := reach.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	return conn, nil
}

// interrupt closes the connection, which ends any blocked read or write. nats.go then reconnects.
func (d *dialer) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// opened is a connection that is open already. nats.go takes it instead of dialing.
type opened struct{ net.Conn }

// Dial implements nats.CustomDialer.
func (o opened) Dial(string, string) (net.Conn, error) { return o.Conn, nil }

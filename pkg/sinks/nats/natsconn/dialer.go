package natsconn

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// dialer opens the TCP connections of a client. It stores two values that nats.go does not expose: the current
// connection, which it can close to end a blocked write, and the cause of the last failure, which nats.go replaces with
// ErrNoServers.
type dialer struct {
	mu   sync.Mutex
	ctx  context.Context // context of the current Connect; the background context while nats.go reconnects
	best atomic.Value    // string: the address that accepted a connection most recently
	conn net.Conn
	err  error
}

// connect calls nats.go and interrupts it when ctx ends. If nats.go returns ErrNoServers, connect returns the cause
// instead.
func (d *dialer) connect(ctx context.Context, url string, opts []natsgo.Option) (*natsgo.Conn, error) {
	d.set(ctx, nil)
	defer context.AfterFunc(ctx, d.interrupt)()
	conn, err := natsgo.Connect(url, append(opts, natsgo.SetCustomDialer(d))...)
	cause := d.lastError()
	if cause != nil && errors.Is(err, natsgo.ErrNoServers) {
		err = cause
	}
	d.set(context.Background(), cause) // used for later connections, which nats.go opens by itself
	return conn, err
}

func (d *dialer) set(ctx context.Context, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.err = ctx, err
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx, timeout := d.ctx, connectTimeout
	if best := d.best.Load(); best != nil && best != address {
		// nats.go tries the servers one after another, so an unavailable server must not delay the best one for long.
		timeout = reach.Interval
	}
	d.mu.Unlock()
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

// interrupt closes the connection, which ends any blocked read or write. nats.go then reconnects.
func (d *dialer) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// note records err as the cause of the next failure.
func (d *dialer) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = cmp.Or(err, d.err)
}

func (d *dialer) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

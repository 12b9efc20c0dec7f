package natsconn

import (
	"context"
	"net"
	"sync"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/reach"
)

// dialer opens the TCP connections of a client, and can close the current one to end a blocked write.
type dialer struct {
	mu   sync.Mutex
	ctx  context.Context // context of the current Connect; the background context while nats.go reconnects
	best string          // the address that accepted a connection most recently
	conn net.Conn
}

// connect calls nats.go and interrupts it when ctx ends.
func (d *dialer) connect(ctx context.Context, url string, opts []natsgo.Option) (*natsgo.Conn, error) {
	d.setContext(ctx)
	defer d.setContext(context.Background()) // used for later connections, which nats.go opens by itself
	defer context.AfterFunc(ctx, d.interrupt)()
	return natsgo.Connect(url, append(opts, natsgo.SetCustomDialer(d))...)
}

func (d *dialer) setContext(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx = ctx
}

// prefer sets the address that is available.
func (d *dialer) prefer(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.best = address
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx, timeout := d.ctx, connectTimeout
	if d.best != "" && d.best != address {
		// nats.go tries the servers one after another, so an unavailable server must not delay the best one for long.
		timeout = reach.Interval
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

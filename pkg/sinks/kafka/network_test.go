package kafka

import (
	"context"
	"net"
	"sync"
	"testing"
)

// network is a dialer whose connections can hang. What a connection still held when the sink closed it is lost, as
// with packets that a network drops; relay is the network that delivers it late.
type network struct {
	mu     sync.Mutex
	thawed chan struct{} // closed while bytes may pass
	wg     sync.WaitGroup
}

func newNetwork(t *testing.T) *network {
	n := &network{thawed: make(chan struct{})}
	close(n.thawed)
	t.Cleanup(func() { n.Thaw(); n.wg.Wait() })
	return n
}

// Freeze lets nothing pass any more.
func (n *network) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.thawed = make(chan struct{})
}

// Thaw ends a freeze.
func (n *network) Thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.thawed:
	default:
		close(n.thawed)
	}
}

func (n *network) gate() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.thawed
}

// closing tells when the sink closes its end.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// dial is for Config.dial.
func (n *network) dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	broker, err := new(net.Dialer).DialContext(ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	end, inner := net.Pipe()
	client := &closing{Conn: end, closed: make(chan struct{})}
	n.wg.Go(func() { n.pass(broker, inner, client.closed) })
	n.wg.Go(func() { n.pass(inner, broker, client.closed) })
	return client, nil
}

func (n *network) pass(to, from net.Conn, closed <-chan struct{}) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		k, err := from.Read(buf)
		select {
		case <-n.gate():
		case <-closed:
			return
		}
		if _, werr := to.Write(buf[:k]); werr != nil || err != nil {
			return
		}
	}
}

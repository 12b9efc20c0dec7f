package kafka

import (
	"context"
	"net"
	"sync"
	"testing"
)

// relay connects a sink to its broker. It can delay the bytes that open connections send to the broker, while new
// connections work. A congested network has this effect on an old connection.
type relay struct {
	mu    sync.Mutex
	gates []chan struct{} // one for each connection; closed while bytes may pass
	wg    sync.WaitGroup
}

func newRelay(t *testing.T) *relay {
	r := new(relay)
	t.Cleanup(func() { r.release(); r.wg.Wait() })
	return r
}

// hold keeps what the open connections get to send from now on, until release.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.gates {
		r.gates[i] = make(chan struct{})
	}
}

// release lets everything pass that was held, also of connections that the sink has closed meanwhile.
func (r *relay) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, gate := range r.gates {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

func (r *relay) gate(i int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gates[i]
}

// dial is for Config.dial.
func (r *relay) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	broker, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	i := len(r.gates)
	r.gates = append(r.gates, make(chan struct{}))
	close(r.gates[i])
	r.mu.Unlock()

	client, inner := net.Pipe()
	sent := make(chan struct{}) // closed when the sink's side has ended and all of it was passed on
	r.wg.Go(func() {
		defer close(sent)
		buf := make([]byte, 64<<10)
		for {
			n, err := inner.Read(buf)
			<-r.gate(i)
			if _, werr := broker.Write(buf[:n]); werr != nil || err != nil {
				return
			}
		}
	})
	r.wg.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := broker.Read(buf)
			if err != nil {
				_ = inner.Close()
				return
			}
			_, _ = inner.Write(buf[:n]) // the sink may be gone; the broker's answer is still read
			select {
			case <-sent: // the broker has answered what came last
				_, _ = inner.Close(), broker.Close()
			default:
			}
		}
	})
	r.wg.Go(func() {
		<-sent
		_ = broker.(*net.TCPConn).CloseWrite()
	})
	return client, nil
}

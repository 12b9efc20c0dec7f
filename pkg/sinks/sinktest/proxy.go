package sinktest

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy on the loopback interface between a sink and its broker. While the proxy is frozen, it accepts
// connections but forwards nothing. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	thawed chan struct{}         // closed while the proxy is not frozen
	conns  map[net.Conn]struct{} // both connections of every pair
	closed bool
}

// NewProxy listens on a free port of 127.0.0.1 and forwards connections to target ("host:port"), which need not be
// listening yet. The proxy is closed at the end of the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{listener: l, target: target, thawed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(p.thawed)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the address of the proxy: "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Freeze stops all traffic in both directions until Thaw is called. Existing connections stay open, and new ones are
// accepted.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default:
	}
}

// Thaw ends a freeze. Bytes that were read before or during the freeze are then forwarded.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

// SetTarget sets the target of future connections. A broker that advertises the proxy's address starts after it.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Connections returns the number of open connections of both sides.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Cut closes all connections, as a network that has lost its state would do. New connections are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Thaw()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.hold(in) {
			p.wg.Go(func() { p.serve(in) })
		}
	}
}

// serve pairs in with a connection to the target. If the target is unavailable, serve closes in, so the target also
// appears unavailable through the proxy.
func (p *Proxy) serve(in net.Conn) {
	defer p.drop(in)
	<-p.gate()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil || !p.hold(out) {
		return
	}
	defer p.drop(out)
	var wg sync.WaitGroup
	wg.Go(func() { p.pass(out, in) })
	wg.Go(func() { p.pass(in, out) })
	wg.Wait()
}

// pass copies bytes from src to dst until src is closed. Then it closes both, so no connection is half closed. If dst
// is closed, the other direction ends, after all bytes that dst had sent were forwarded.
func (p *Proxy) pass(dst, src net.Conn) {
	defer func() { _, _ = src.Close(), dst.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		<-p.gate()
		_, _ = dst.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed
}

// hold registers c for Cut. If the proxy is closed, hold closes c and returns false.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = c.Close()
	delete(p.conns, c)
}

var _ Freezer = (*Proxy)(nil)

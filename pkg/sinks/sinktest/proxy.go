package sinktest

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy on the loopback interface between a sink and its broker. It forwards all connections until
// Freeze, Stall or Refuse is called; each of them replaces the others, and Thaw ends them. It is safe for concurrent
// use.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	target  string
	mode    mode
	stalls  int                   // how often Stall was called
	conns   map[net.Conn]struct{} // both connections of every pair
	closed  bool
}

// mode is what a proxy does with connections.
type mode int

const (
	open     mode = iota // all bytes pass
	frozen               // no bytes pass
	stalled              // no bytes pass on connections from before the last Stall
	refusing             // new connections are closed
)

// NewProxy listens on a free port of 127.0.0.1 and forwards connections to target ("host:port"), which need not be
// listening yet. The proxy is closed at the end of the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	p.changed.L = &p.mu
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address of the proxy: "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Freeze stops all traffic in both directions until Thaw is called. Existing connections stay open, and new ones are
// accepted.
func (p *Proxy) Freeze() { p.set(frozen) }

// Stall stops all traffic of the existing connections until Thaw is called. New connections work.
func (p *Proxy) Stall() { p.set(stalled) }

// Refuse closes all connections, existing and new ones, until Thaw is called.
func (p *Proxy) Refuse() {
	p.set(refusing)
	p.Cut()
}

// Thaw ends what Freeze, Stall or Refuse began. Bytes that were read before or meanwhile are then forwarded.
func (p *Proxy) Thaw() { p.set(open) }

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	if m == stalled {
		p.stalls++
	}
	p.changed.Broadcast()
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

// Close closes the proxy and all connections before the end of the test.
func (p *Proxy) Close() {
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
	p.mu.Lock()
	since := p.stalls
	p.mu.Unlock()
	target := p.wait(since)
	out, err := net.Dial("tcp", target)
	if err != nil || !p.hold(out) {
		return
	}
	defer p.drop(out)
	var wg sync.WaitGroup
	wg.Go(func() { p.pass(out, in, since) })
	wg.Go(func() { p.pass(in, out, since) })
	wg.Wait()
}

// pass copies bytes from src to dst until src is closed. Then it closes both, so no connection is half closed. If dst
// is closed, the other direction ends, after all bytes that dst had sent were forwarded.
func (p *Proxy) pass(dst, src net.Conn, since int) {
	defer func() { _, _ = src.Close(), dst.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		p.wait(since)
		_, _ = dst.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// wait waits until bytes of a connection may pass, and returns the target. since is the number of stalls at the time
// when the connection began.
func (p *Proxy) wait(since int) (target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == frozen || p.mode == stalled && since < p.stalls {
		p.changed.Wait()
	}
	return p.target
}

// hold registers c for Cut. If the proxy is closed or refuses connections, hold closes c and returns false.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == refusing {
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

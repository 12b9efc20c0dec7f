package sinktest

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy on loopback between a sink and its broker. While it is frozen it accepts connections
// and passes nothing on. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	thawed chan struct{}         // closed while bytes may pass
	conns  map[net.Conn]struct{} // both sides of every pair
	closed bool
}

// NewProxy listens on a free port of 127.0.0.1 and passes connections on to target ("host:port"), which need
// not listen yet. It ends with the test.
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

// Addr is where the sink connects to: "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Freeze stops every byte in both directions until Thaw. Connections stand, and new ones are accepted.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
		p.thawed = make(chan struct{})
	default:
	}
}

// Thaw ends a freeze. What was read before and during it is passed on.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

// Cut closes every connection, as a network that lost its state would. New ones are accepted.
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

// serve pairs in with a connection to the target. A target that is not there closes in, so that a broker that
// is away looks away through the proxy too.
func (p *Proxy) serve(in net.Conn) {
	defer p.drop(in)
	<-p.gate()
	out, err := net.Dial("tcp", p.target)
	if err != nil || !p.hold(out) {
		return
	}
	defer p.drop(out)
	var wg sync.WaitGroup
	wg.Go(func() { p.pass(out, in) })
	wg.Go(func() { p.pass(in, out) })
	wg.Wait()
}

// pass copies until either side ends, then closes both: no half-closed pairs.
func (p *Proxy) pass(dst, src net.Conn) {
	defer func() { _, _ = src.Close(), dst.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		<-p.gate()
		if _, werr := dst.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed
}

// hold registers c for Cut; it closes c and returns false once the proxy is closed.
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

package chaos

import (
	"net"
	"sync"
)

// proxy is a TCP proxy on loopback that passes bytes on, holds them, or refuses connections.
type proxy struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup

	mu    sync.Mutex
	cond  *sync.Cond
	mode  Action // Back, Hang, Late or Away
	held  int    // how often connections were held: those of before are late
	ended bool
	conns map[net.Conn]struct{}
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, mode: Back, conns: map[net.Conn]struct{}{}}
	p.cond = sync.NewCond(&p.mu)
	p.group.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set changes what the proxy does: Back, Hang, Late (existing connections hang), Away (they break), or Cut (the same
// once).
func (p *proxy) set(mode Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mode == Away || mode == Cut {
		for c := range p.conns {
			_ = c.Close() // broken is what it is to be
		}
	}
	if mode == Late {
		p.held++
	}
	if mode != Cut {
		p.mode = mode
	}
	p.cond.Broadcast()
}

func (p *proxy) close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.set(Away)
	p.group.Wait()
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.add(in) {
			p.group.Go(func() { p.serve(in) })
		}
	}
}

// add takes a connection, unless connections are refused: then it closes it.
func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.mode == Away {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = c.Close()
	delete(p.conns, c)
}

// wait returns when the bytes of a connection may pass, or the proxy is not hanging any more. since is what held was
// when the connection began.
func (p *proxy) wait(since int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for (p.mode == Hang || p.mode == Late && since < p.held) && !p.ended {
		p.cond.Wait()
	}
}

func (p *proxy) serve(in net.Conn) {
	defer p.drop(in)
	p.mu.Lock()
	since := p.held
	p.mu.Unlock()
	p.wait(since)
	out, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(out) {
		return
	}
	defer p.drop(out)
	var group sync.WaitGroup
	group.Go(func() { p.pass(out, in, since) })
	group.Go(func() { p.pass(in, out, since) })
	group.Wait()
}

// pass copies until either side ends, then closes both.
func (p *proxy) pass(dst, src net.Conn, since int) {
	defer func() { _, _ = src.Close(), dst.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		p.wait(since)
		if _, werr := dst.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

package reach

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// Interval is the time between two dials of one address.
const Interval = 250 * time.Millisecond

// Prober dials the addresses that callers of Wait wait for. The zero value is ready to use. It must not be copied.
type Prober struct {
	// Dial opens a connection, which the Prober closes immediately. If it is nil, the function Dial is used. It must be
	// set before the first Wait.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	probes map[string]*probe
}

// probe is an address for which at least one caller waits.
type probe struct {
	stop    context.CancelFunc
	waiters map[waiter]bool // never empty
	err     error           // error of the last dial that failed
}

// waiter represents one call of Wait. It receives the addresses that were reached, and has room for all of them.
type waiter chan string

// Failure is a dial that failed.
type Failure struct {
	Address string
	Err     error
}

// Wait blocks until one of the addresses accepts a connection, and returns that address. An address is dialed
// immediately, unless another caller already waits for it. If ctx ends first, Wait returns an empty address, and the
// last error for each address in order. Addresses whose first dial has not ended yet are omitted. Wait is safe
// for concurrent use.
func (p *Prober) Wait(ctx context.Context, addrs ...string) (string, []Failure) {
	addrs = slices.Compact(slices.Sorted(slices.Values(addrs)))
	w := make(waiter, len(addrs))
	for _, addr := range addrs {
		p.join(addr, w)
	}
	select {
	case addr := <-w:
		p.leave(addrs, w)
		return addr, nil
	case <-ctx.Done():
		return "", p.leave(addrs, w)
	}
}

// join adds a waiter to the probe of an address. If there is no probe, join starts one.
func (p *Prober) join(addr string, w waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if running := p.probes[addr]; running != nil {
		running.waiters[w] = true
		return
	}
	if p.probes == nil {
		p.probes = make(map[string]*probe)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.probes[addr] = &probe{stop: stop, waiters: map[waiter]bool{w: true}}
	go p.run(ctx, addr, p.probes[addr])
}

// leave removes a waiter from the probes of addrs, and stops probes without waiters. It returns the last failure for
// each address.
func (p *Prober) leave(addrs []string, w waiter) (failures []Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, addr := range addrs {
		running := p.probes[addr]
		if running == nil || !running.waiters[w] { // the probe that w joined has ended
			continue
		}
		if running.err != nil {
			failures = append(failures, Failure{addr, running.err})
		}
		if delete(running.waiters, w); len(running.waiters) == 0 {
			running.stop()
			delete(p.probes, addr)
		}
	}
	return failures
}

// run dials addr every Interval until ctx ends.
func (p *Prober) run(ctx context.Context, addr string, running *probe) {
	var dials sync.WaitGroup
	defer dials.Wait()
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		dials.Go(func() { p.try(ctx, addr, running) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// try dials addr once. On success it wakes all waiters and ends the probe.
func (p *Prober) try(ctx context.Context, addr string, running *probe) {
	dial := p.Dial
	if dial == nil {
		dial = Dial
	}
	conn, err := dial(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		running.err = err
	default:
		for w := range running.waiters {
			w <- addr
		}
		running.stop()
		delete(p.probes, addr)
	}
}

package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
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
	waiters map[waiter]struct{} // never empty
	err     error               // error of the last dial that failed
}

// waiter represents one call of Wait. It receives the address that was reached, and has a buffer of one.
type waiter chan string

// UnreachableError is returned by Wait if its context ends before an address could be reached.
type UnreachableError struct {
	// Failures contains the last error for each address. Addresses for which no dial has ended yet are missing.
	Failures []Failure
	Err      error // wraps the reason why the context ended
}

// Failure is a dial that failed.
type Failure struct {
	Address string
	Err     error
}

// Error returns all failures in one line, or the context's error if there are none.
func (e *UnreachableError) Error() string {
	if len(e.Failures) == 0 {
		return e.Err.Error()
	}
	var lines []string
	for _, f := range e.Failures {
		lines = append(lines, f.Address+": "+f.Err.Error())
	}
	return strings.Join(lines, "; ")
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Wait blocks until one of the addresses accepts a connection, and returns that address. An address is dialed
// immediately, unless another caller already waits for it. If ctx ends first, Wait returns an *UnreachableError. It is
// safe for concurrent use.
func (p *Prober) Wait(ctx context.Context, addrs ...string) (string, error) {
	if len(addrs) == 0 {
		return "", errors.New("reach: no address was given")
	}
	addrs = slices.Compact(slices.Sorted(slices.Values(addrs)))
	w := make(waiter, 1)
	for _, addr := range addrs {
		p.join(addr, w)
	}
	select {
	case addr := <-w:
		p.leave(addrs, w)
		return addr, nil
	case <-ctx.Done():
		return "", &UnreachableError{
			Failures: p.leave(addrs, w),
			Err:      fmt.Errorf("cannot be reached: %w", context.Cause(ctx)),
		}
	}
}

// join adds a waiter to the probe of an address. If there is no probe, join starts one.
func (p *Prober) join(addr string, w waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if running := p.probes[addr]; running != nil {
		running.waiters[w] = struct{}{}
		return
	}
	if p.probes == nil {
		p.probes = make(map[string]*probe)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.probes[addr] = &probe{stop: stop, waiters: map[waiter]struct{}{w: {}}}
	go p.run(ctx, addr, p.probes[addr])
}

// leave removes a waiter from the probes of addrs, and stops probes without waiters. It returns the last failure for
// each address.
func (p *Prober) leave(addrs []string, w waiter) (failures []Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, addr := range addrs {
		running := p.probes[addr]
		if running == nil {
			continue
		}
		if _, mine := running.waiters[w]; !mine { // the probe that w joined has ended, and running is a newer one
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
			select {
			case w <- addr:
			default: // the waiter has already received another address
			}
		}
		running.stop()
		delete(p.probes, addr)
	}
}

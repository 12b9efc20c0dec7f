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

// Prober waits for unavailable servers. The zero value is ready to use.
type Prober struct {
	// Dial opens a connection, which the Prober closes immediately. If it is nil, the function Dial is used. It must be
	// set before the first Wait.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

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

// Wait blocks until one of the addresses accepts a connection, and returns that address. If ctx ends first, Wait
// returns an *UnreachableError. When Wait returns, all its dials have ended. It is safe for concurrent use.
func (p *Prober) Wait(ctx context.Context, addrs ...string) (string, error) {
	if len(addrs) == 0 {
		return "", errors.New("reach: no address to wait for")
	}
	addrs = slices.Compact(slices.Sorted(slices.Values(addrs)))
	dial := p.Dial
	if dial == nil {
		dial = Dial
	}
	var dials sync.WaitGroup
	defer dials.Wait()
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan Failure)
	dialAll := func() {
		for _, addr := range addrs {
			dials.Go(func() {
				conn, err := dial(dialing, "tcp", addr)
				if err == nil {
					_ = conn.Close()
				}
				select {
				case results <- Failure{addr, err}:
				case <-dialing.Done():
				}
			})
		}
	}
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	errs := map[string]error{} // error of the last dial that failed, by address
	for dialAll(); ; {
		select {
		case <-tick.C:
			dialAll()
		case r := <-results:
			if r.Err == nil {
				return r.Address, nil
			}
			if ctx.Err() == nil {
				errs[r.Address] = r.Err
			}
		case <-ctx.Done():
			e := &UnreachableError{Err: fmt.Errorf("cannot be reached: %w", context.Cause(ctx))}
			for _, addr := range addrs {
				if err := errs[addr]; err != nil {
					e.Failures = append(e.Failures, Failure{addr, err})
				}
			}
			return "", e
		}
	}
}

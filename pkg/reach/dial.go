package reach

import (
	"cmp"
	"context"
	"net"
	"sync"
	"time"
)

const (
	// Timeout limits one attempt to open a TCP connection.
	Timeout = time.Second
	// lookupTimeout limits a DNS lookup. It is longer because a resolver tries its second server only after several
	// seconds.
	lookupTimeout = 5 * time.Second
)

// Dial opens a TCP connection to address, which has the form host:port. It dials all IP addresses of the host
// concurrently, each for at most Timeout, and returns the first connection that succeeds. If all dials fail, it returns
// the error for the first IP address.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	looking, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupHost(looking, cmp.Or(host, "localhost"))
	if err != nil {
		return nil, err
	}
	addresses := make([]string, len(hosts))
	for i, h := range hosts {
		addresses[i] = net.JoinHostPort(h, port)
	}
	return first(ctx, network, addresses, dialOne)
}

func dialOne(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: Timeout}
	return d.DialContext(ctx, network, address)
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// first dials all addresses concurrently and returns the first connection that succeeds. addresses must not be empty.
// When first returns, all other dials have ended and their connections are closed.
func first(ctx context.Context, network string, addresses []string, dial dialFunc) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns, errs := make(chan net.Conn, len(addresses)), make([]error, len(addresses))
	var dials sync.WaitGroup
	for i, address := range addresses {
		dials.Go(func() {
			conn, err := dial(ctx, network, address)
			if err != nil {
				errs[i] = err
				return
			}
			conns <- conn
			cancel()
		})
	}
	dials.Wait()
	close(conns)
	won, ok := <-conns
	for late := range conns {
		_ = late.Close()
	}
	if !ok {
		return nil, errs[0]
	}
	return won, nil
}

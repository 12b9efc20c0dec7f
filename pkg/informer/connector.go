package informer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/reach"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Connector opens the connections to one API server, and waits for that while it is away. All clients of the API server
// share one, so that one probe serves everything that waits. A nil *Connector is valid, and probes nothing: it tries
// again at intervals.
type Connector struct {
	prober reach.Prober
	dialed atomic.Pointer[string] // address that was dialed last: the API server's, or a proxy's
}

// NewConnector makes the connector of an API server. dial opens connections, and is that of a rest.Config; nil is reach.Dial.
func NewConnector(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Connector {
	if dial == nil {
		dial = reach.Dial
	}
	return &Connector{prober: reach.Prober{Dial: dial}}
}

// Dial is the Dial of a rest.Config.
func (c *Connector) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.dialed.Store(&address)
	return c.prober.Dial(ctx, network, address)
}

// reach calls try until it returns something else than that the API server was not reached, or ctx ends. It returns what try
// returned last.
func (c *Connector) reach(ctx context.Context, try func() error) error {
	for began := time.Now(); ; began = time.Now() {
		err := try()
		if !unreachable(err) || ctx.Err() != nil {
			return err
		}
		if c != nil {
			if address := c.dialed.Load(); address != nil {
				_, _ = c.prober.Wait(ctx, *address)
			}
		}
		pause(ctx, reach.Interval-time.Since(began)) // something that accepts connections need not be the API server
		if ctx.Err() != nil {
			return err
		}
	}
}

// Until calls try until it succeeds or ctx ends. What the API server answers makes it wait longer each time, or for as long as
// the answer says; nothing else does.
func (c *Connector) Until(ctx context.Context, try func() error) error {
	backoff := answerBackoff()
	for {
		err := c.reach(ctx, try)
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, max(backoff.Step(), retryAfter(err)))
		if ctx.Err() != nil {
			return err
		}
	}
}

// answerBackoff is between requests that the API server answers by an error. It is about a quarter of the time for which that
// has gone on: a server that has just started refuses for some seconds what it will allow.
func answerBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.25, Jitter: 0.2, Cap: 10 * time.Second, Steps: 100}
}

// retryAfter is how long the API server asks to wait; zero if it does not.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// unreachable reports whether a request failed for lack of a connection: it was refused or reset, or brought nothing in time.
func unreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return false
	}
	operation, network := errors.AsType[*net.OpError](err)
	if network && operation.Op != "dial" && operation.Op != "read" && operation.Op != "write" {
		return false // "remote error": the server does not take our certificate
	}
	_, unknown := errors.AsType[*net.DNSError](err)
	return network || unknown || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || utilnet.IsConnectionRefused(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// pause returns after a while, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

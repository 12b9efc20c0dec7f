package informer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/pkg/reach"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Connector opens the connections to one API server, and waits for the server while it is unavailable. All clients of
// the API server share one Connector, so one probe serves all waiting requests. A nil *Connector is valid: it retries
// at fixed intervals.
type Connector struct {
	prober reach.Prober
	dialed atomic.Pointer[string] // last dialed address, of the API server or of a proxy
}

// NewConnector returns a connector for one API server. dial is the Dial function of a rest.Config. If dial is nil,
// reach.Dial is used.
func NewConnector(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Connector {
	if dial == nil {
		dial = reach.Dial
	}
	return &Connector{prober: reach.Prober{Dial: dial}}
}

// Dial implements the Dial function of a rest.Config.
func (c *Connector) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.dialed.Store(&address)
	return c.prober.Dial(ctx, network, address)
}

// reach calls try until the API server responds or ctx ends. It returns the last error of try.
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
		// A server that accepts connections need not be the API server.
		if !pause.For(ctx, reach.Interval-time.Since(began)) {
			return err
		}
	}
}

// Until calls try until it succeeds or ctx ends. After an error response from the API server, it waits for a back-off
// interval or, if that is longer, for the time that the response requests.
func (c *Connector) Until(ctx context.Context, try func() error) error {
	backoff := answerBackoff()
	for {
		err := c.reach(ctx, try)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !pause.For(ctx, max(backoff.Step(), retryAfter(err))) {
			return err
		}
	}
}

// answerBackoff returns the back-off between requests to which the API server responds with errors. A server that has
// just started rejects requests for some seconds, so every wait is about a quarter of the time since the first error.
func answerBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.25, Jitter: 0.2, Cap: 10 * time.Second, Steps: 100}
}

// retryAfter returns the Retry-After value of an error response, or 0 if err has none.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// unreachable reports whether a request failed because of its connection: the connection was refused, was reset or
// timed out.
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
		return false // a "remote error": the server rejects the client certificate
	}
	_, unknown := errors.AsType[*net.DNSError](err)
	return network || unknown || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		utilnet.IsProbableEOF(err) ||
		utilnet.IsTimeout(err) ||
		utilnet.IsConnectionRefused(err) ||
		utilnet.IsConnectionReset(err) ||
		utilnet.IsHTTP2ConnectionLost(err)
}

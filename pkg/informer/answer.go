package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// answerTimeout is how long a request waits for the beginning of its response. An API server begins its response to a
// watch at once, and ends other requests after a minute (--request-timeout). A proxy whose server is gone may never
// respond, and nothing else would end the request: the connection to the proxy works.
const answerTimeout = 5 * time.Minute

// bodyTimeout is how long a response may bring nothing. An API server ends watches after at most ten minutes, because
// the Reflector requests this. It is longer than plainSilence, after which the status shows that a watch is stale.
const bodyTimeout = 15 * time.Minute

// These errors count as failures of the connection: see unreachable.
var (
	errNoAnswer = fmt.Errorf("the API server or a proxy accepted the request, but did not respond within %s: %w",
		answerTimeout, os.ErrDeadlineExceeded)
	errStalled = fmt.Errorf("the API server or a proxy began its response, but then sent nothing for %s: %w",
		bodyTimeout, os.ErrDeadlineExceeded)
)

// timed ends requests after answerTimeout if the response has not begun, and after bodyTimeout if it brings nothing.
type timed struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t timed) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(answerTimeout, func() { cancel(errNoAnswer) })
	response, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		err = explain(ctx, err)
		cancel(nil)
		return nil, err
	}
	timer = time.AfterFunc(bodyTimeout, func() { cancel(errStalled) })
	response.Body = timedBody{response.Body, ctx, cancel, timer}
	return response, nil
}

// explain returns the cause of an error if that is a time limit. HTTP/2 returns context.Canceled.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) || errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// timedBody ends its request if a Read waits for too long, and releases the context of the request when it is closed.
type timedBody struct {
	io.ReadCloser

	ctx    context.Context //nolint:containedctx // the context of the request
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// Read implements io.Reader. The time between two calls does not count: handlers may block.
func (b timedBody) Read(p []byte) (n int, err error) {
	b.timer.Reset(bodyTimeout)
	if n, err = b.ReadCloser.Read(p); err != nil {
		err = explain(b.ctx, err)
	}
	b.timer.Stop()
	return n, err
}

// Close implements io.Closer.
func (b timedBody) Close() error {
	b.timer.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

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

// errNoAnswer counts as a failure of the connection: see unreachable.
var errNoAnswer = fmt.Errorf("the API server or a proxy accepted the request, but did not respond within %s: %w",
	answerTimeout, os.ErrDeadlineExceeded)

// timed ends requests after answerTimeout if the response has not begun.
type timed struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t timed) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(answerTimeout, func() { cancel(errNoAnswer) })
	response, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			err = errNoAnswer // HTTP/2 returns context.Canceled
		}
		cancel(nil)
		return nil, err
	}
	response.Body = timedBody{response.Body, cancel}
	return response, nil
}

// timedBody releases the context of a request when its response is closed.
type timedBody struct {
	io.ReadCloser

	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b timedBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

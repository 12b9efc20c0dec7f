package access

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// HTTPClient returns a client for single requests to an HTTP server, with the current CAs. It does not follow
// redirects, so secrets are sent only to the configured URL.
func (s *Session) HTTPClient() (*http.Client, error) {
	config, err := s.Config("") // The transport sets the host.
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: reach.Dial, TLSClientConfig: config, DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// HTTPError explains why a request to the HTTP server at address got no response. key is the configuration key of the
// server's URL, and timeout is the time limit of the request. The result is a [sinks.ConnectError] without the URL,
// unless ctx is canceled or err is not an error of an [http.Client].
func (s *Session) HTTPError(ctx context.Context, address, key string, timeout time.Duration, err error) error {
	exchange, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) || s.Refused(err) {
		err = s.Failure(address, timeout, err)
	} else {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			timeout = min(reach.Timeout, timeout)
		}
		err = DialError(ctx, address, key, timeout, exchange.Err)
	}
	if known, ok := errors.AsType[*sinks.ConnectError](err); ok {
		known.Remedy = strings.Replace(known.Remedy, "the broker", "it", 1)
	}
	return err
}

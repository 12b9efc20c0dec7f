package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

const (
	clientID = "deltabridge"
	// maxIdle is less than what brokers (connections.max.idle.ms: 10 minutes) and most load balancers allow. A
	// connection that was idle for longer is not used again: its end would look like a lost acknowledgement.
	maxIdle = 4 * time.Minute
)

// conn is a connection to one broker, past TLS, version exchange and authentication. One goroutine uses it at a time.
type conn struct {
	net     net.Conn
	proto   *protocol.Conn
	timeout time.Duration

	used      time.Time // end of the last exchange
	expires   time.Time // of the SASL session; zero: never
	exchanges int
	broken    bool
}

// brokerError says which broker did not do what was asked, and whether the request may have reached it.
type brokerError struct {
	addr string
	sent bool
	err  error
}

func (e *brokerError) Error() string { return "kafka broker " + e.addr + ": " + e.err.Error() }
func (e *brokerError) Unwrap() error { return e.err }

// dial connects to the broker at addr. Nothing that fails here has reached it.
func dial(ctx context.Context, cfg *Config, addr string) (*conn, error) {
	fail := func(err error) (*conn, error) { return nil, &brokerError{addr: addr, err: err} }
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	nc, err := cfg.dial(ctx, "tcp", addr)
	if err != nil {
		return fail(plainCause(ctx, err, cfg.RequestTimeout))
	}
	if cfg.TLS.enabled() {
		if nc, err = startTLS(ctx, cfg, nc, addr); err != nil {
			return fail(err)
		}
	}
	k := &conn{net: nc, proto: protocol.NewConn(nc, clientID), timeout: cfg.RequestTimeout}
	if err := k.open(ctx, cfg); err != nil {
		k.close()
		return fail(err)
	}
	k.exchanges = 0
	return k, nil
}

func startTLS(ctx context.Context, cfg *Config, nc net.Conn, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.TLS.load(host)
	if err != nil {
		nc.Close()
		return nil, err
	}
	tc := tls.Client(nc, tlsConfig)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("TLS handshake: %w%s", plainCause(ctx, err, cfg.RequestTimeout), tlsHint(err))
	}
	return tc, nil
}

// tlsHint is what is probably wrong, in words.
func tlsHint(err error) string {
	var header tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &header), isClosed(err):
		return " (the port may be a plaintext listener; then leave tls out)"
	case errors.As(err, &unknown):
		return " (tls.caFile names the certificate to trust)"
	}
	return ""
}

// open learns the broker's API versions and authenticates.
func (k *conn) open(ctx context.Context, cfg *Config) error {
	msg, err := k.exchange(ctx, new(apiversions.Request))
	if err != nil {
		return fmt.Errorf("asking for its API versions: %w%s", err, k.openHint(cfg, err))
	}
	res := msg.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return fmt.Errorf("asking for its API versions: %w", kafkago.Error(res.ErrorCode))
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, api := range res.ApiKeys {
		key := protocol.ApiKey(api.ApiKey)
		versions[key] = key.SelectVersion(api.MinVersion, api.MaxVersion)
	}
	const headersSince = 3 // version of the Produce request with record headers: Kafka 0.11
	if versions[protocol.Produce] < headersSince {
		return errors.New("it is older than Kafka 0.11 and takes no record headers")
	}
	k.proto.SetVersions(versions)
	if cfg.SASL.Mechanism != "" {
		return k.authenticate(ctx, &cfg.SASL)
	}
	return nil
}

func (k *conn) openHint(cfg *Config, err error) string {
	switch {
	case cfg.TLS.enabled() && (isClosed(err) || strings.Contains(err.Error(), "certificate")):
		return " (it may demand a client certificate: tls.certFile, tls.keyFile)"
	case !cfg.TLS.enabled() && (isClosed(err) || strings.Contains(err.Error(), "expecting TLS")):
		return " (the port may be a TLS listener; then set tls)"
	}
	return ""
}

// exchange sends a request and waits for its answer, for k.timeout at most and not longer than ctx. After an error
// the connection is of no use.
func (k *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := k.net.SetDeadline(time.Now().Add(k.timeout)); err != nil {
		return nil, plainCause(ctx, err, k.timeout)
	}
	past := time.Unix(1, 0)
	stop := context.AfterFunc(ctx, func() { _ = k.net.SetDeadline(past) })
	res, err := k.proto.RoundTrip(req)
	if !stop() { // the deadline is, or will be, in the past
		k.broken = true
	}
	k.used = time.Now()
	k.exchanges++
	if err != nil {
		k.broken = true
		return nil, plainCause(ctx, err, k.timeout)
	}
	return res, nil
}

// usable reports whether a request may be sent on the connection.
func (k *conn) usable(now time.Time) bool {
	return !k.broken && now.Sub(k.used) < maxIdle && (k.expires.IsZero() || now.Before(k.expires))
}

func (k *conn) close() { _ = k.net.Close() } // whatever it says, the connection is gone

// isClosed reports whether err says that the other side closed the connection.
func isClosed(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && (op.Op == "read" || op.Op == "write")
}

// plainCause is err in words that stay the same from one attempt to the next: without the local port.
func plainCause(ctx context.Context, err error, timeout time.Duration) error {
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: %w", timeout, os.ErrDeadlineExceeded)
	}
	return withoutPorts(err)
}

func withoutPorts(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err
	}
	return &net.OpError{Op: op.Op, Net: op.Net, Err: op.Err}
}

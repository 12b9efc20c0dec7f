package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	clientID = "deltabridge"
	// maxIdle is less than what brokers (connections.max.idle.ms: 10 minutes) and most load balancers allow. A
	// connection that was idle for longer is not used again: its end would look like a lost acknowledgement.
	maxIdle = 4 * time.Minute
)

// conn is a connection to one broker, past TLS, version exchange and authentication. One goroutine uses it at a time.
type conn struct {
	addr    string
	net     net.Conn
	tls     *access.Session // nil: without
	proto   *protocol.Conn
	timeout time.Duration

	used      time.Time // end of the last exchange
	expires   time.Time // of the SASL session; zero: never
	exchanges int
	broken    bool

	files  [sha256.Size]byte // the stamp of the files that it was opened with
	looked time.Time         // when they were last compared
	spoken string            // what was said of changed files that do not do
}

// brokerError says which broker did not do what was asked, and whether the request may have reached it.
type brokerError struct {
	addr string
	sent bool
	err  error
}

func (e *brokerError) Error() string {
	if known, ok := e.err.(*sinks.ConnectError); ok && known.Address != "" { //nolint:errorlint // not one that it wraps
		return "kafka broker " + known.Error()
	}
	return "kafka broker " + e.addr + ": " + e.err.Error()
}
func (e *brokerError) Unwrap() error { return e.err }

// trace is told of each step of open that succeeded. It may be nil.
type trace func(step, detail string, warn bool)

func (tr trace) passed(step, detail string, warn bool) {
	if tr != nil {
		tr(step, detail, warn)
	}
}

// dial connects to the broker at addr. Nothing that fails here has reached it.
func (c *cluster) dial(ctx context.Context, addr string) (*conn, error) {
	k, err := c.open(ctx, addr, nil)
	if err != nil {
		return nil, &brokerError{addr: addr, err: err}
	}
	return k, nil
}

func (c *cluster) open(ctx context.Context, addr string, tr trace) (*conn, error) {
	cfg := c.cfg
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	k := &conn{addr: addr, timeout: cfg.RequestTimeout, files: access.Stamp(cfg.files()...), looked: time.Now()}
	session, err := cfg.TLS.NewSession(tlsSection)
	if err != nil {
		return nil, err
	}
	nc, err := cfg.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, c.dialError(ctx, addr, err)
	}
	tr.passed(sinks.StepConnect, "to "+nc.RemoteAddr().String(), false)
	if cfg.TLS.IsSet() {
		tc, err := session.Handshake(ctx, nc, addr, cfg.RequestTimeout)
		if err != nil {
			return nil, err
		}
		text, warn := session.Details(tc.ConnectionState())
		tr.passed(sinks.StepTLS, text, warn)
		nc, k.tls = tc, session
	}
	k.net, k.proto = nc, protocol.NewConn(nc, clientID)
	if err := k.greet(ctx, tr); err != nil {
		k.close()
		return nil, err
	}
	if cfg.SASL.Mechanism != "" {
		if err := k.authenticate(ctx, &cfg.SASL, &c.aws); err != nil {
			k.close()
			return nil, err
		}
		detail, bare := cfg.SASL.who()+" by "+cfg.SASL.Mechanism, cfg.SASL.Mechanism == mechanismPlain && k.tls == nil
		if bare {
			detail += ", without TLS: whoever is on the way can read the password"
		}
		tr.passed(sinks.StepAuthenticate, detail, bare)
	}
	k.exchanges = 0
	return k, nil
}

// dialError is why there is no connection to addr. Addresses that the configuration does not have are the cluster's.
func (c *cluster) dialError(ctx context.Context, addr string, err error) error {
	err = access.DialError(ctx, addr, "kafka.brokers", min(reach.Timeout, c.cfg.RequestTimeout), err)
	known, ok := errors.AsType[*sinks.ConnectError](err)
	if !ok || slices.Contains(c.cfg.Brokers, addr) {
		return err
	}
	known.Key = ""
	known.Remedy = "the cluster tells its clients to go there: set advertised.listeners of that broker to an address that can be reached from here"
	return known
}

// fail is an error of a step with this broker, in words.
func (k *conn) fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Address: k.addr, Key: key, Remedy: remedy, Err: err}
}

// greet learns the broker's API versions.
func (k *conn) greet(ctx context.Context, tr trace) error {
	msg, err := k.exchange(ctx, new(apiversions.Request))
	if err != nil {
		return k.greetError(ctx, err)
	}
	res := msg.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return k.fail(sinks.StepProtocol, "kafka.brokers", "", fmt.Errorf("asked for its API versions: %w", kafkago.Error(res.ErrorCode)))
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, api := range res.ApiKeys {
		key := protocol.ApiKey(api.ApiKey)
		versions[key] = key.SelectVersion(api.MinVersion, api.MaxVersion)
	}
	const headersSince = 3 // version of the Produce request with record headers: Kafka 0.11
	if versions[protocol.Produce] < headersSince {
		return k.fail(sinks.StepProtocol, "", "use a newer broker", errors.New("it is older than Kafka 0.11 and takes no record headers"))
	}
	k.proto.SetVersions(versions)
	tr.passed(sinks.StepProtocol, fmt.Sprintf("%d APIs, Produce up to version %d", len(versions), versions[protocol.Produce]), false)
	return nil
}

// greetError is what the first exchange failed with, in words: much of what is wrong before shows only here.
func (k *conn) greetError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case k.tls != nil && k.tls.Refused(err):
		return k.tls.Failure(k.addr, k.timeout, err)
	case k.tls == nil && strings.Contains(err.Error(), "expecting TLS"): // kafka-go's words for a TLS alert
		return k.fail(sinks.StepTLS, "kafka.tls", "set kafka.tls.enabled: true, or connect to the port of the plaintext listener",
			errors.New("it answers in TLS, and kafka.tls is not set"))
	case k.tls == nil && isClosed(err):
		return k.fail(sinks.StepTLS, "kafka.tls", "set kafka.tls.enabled: true if it is a TLS listener, or correct kafka.brokers",
			errors.New("it closed the connection at the first request, as a TLS listener or another server does"))
	case access.TimedOut(err):
		return k.fail(sinks.StepProtocol, "kafka.brokers", "see whether kafka.brokers names a Kafka broker, and whether it is overloaded",
			access.Words(os.ErrDeadlineExceeded, "asked for its API versions, it gives no answer within %v", k.timeout))
	}
	return k.fail(sinks.StepProtocol, "kafka.brokers", "see whether kafka.brokers names a Kafka broker", fmt.Errorf("asked for its API versions: %w", err))
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
func isClosed(err error) bool { return access.Closed(err) }

// plainCause is err in words that stay the same from one attempt to the next: without the local port.
func plainCause(ctx context.Context, err error, timeout time.Duration) error {
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: %w", timeout, os.ErrDeadlineExceeded)
	}
	return access.Plain(err)
}

package wire

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
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	clientID = "deltabridge"
	// tlsSection is where the configuration of a sink has its TLS.
	tlsSection = "kafka.tls"
	// maxIdle is less than what brokers (connections.max.idle.ms: 10 minutes) and most load balancers allow. A
	// connection that was idle for longer is not used again: its end would look like a lost acknowledgement.
	maxIdle = 4 * time.Minute
)

// conn is a connection to one broker, past TLS, version exchange and authentication. One goroutine uses it at a time.
type conn struct {
	addr  string
	cfg   *Config
	net   net.Conn
	tls   *access.Session // nil: without
	proto *protocol.Conn

	used      time.Time // end of the last exchange
	expires   time.Time // of the SASL session; zero: never
	exchanges int       // since authentication
	broken    bool

	files   [sha256.Size]byte // the stamp of the files that it was opened with
	checked time.Time         // when they were last compared
	warned  string            // the logged error of changed files
}

// Passed is called with each step of opening a connection that succeeded.
type Passed func(step, detail string, warn bool)

// dial connects to the broker at addr. If it fails, no request has reached the broker.
func (c *Client) dial(ctx context.Context, addr string) (*conn, error) {
	k, err := c.open(ctx, addr, func(string, string, bool) {})
	if err != nil {
		return nil, &brokerError{addr: addr, err: err}
	}
	return k, nil
}

// Try opens a connection to the broker at addr, as Send does, and keeps it for Send.
func (c *Client) Try(ctx context.Context, addr string, passed Passed) error {
	k, err := c.open(ctx, addr, passed)
	if err != nil {
		return err
	}
	// A listener that requires SASL shows it only now.
	if _, err := k.exchange(ctx, &metadata.Request{TopicNames: []string{}}); err != nil {
		k.close()
		return k.demandsSASL(err)
	}
	c.put(addr, k)
	return nil
}

func (c *Client) open(ctx context.Context, addr string, passed Passed) (_ *conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	k := &conn{addr: addr, cfg: c.cfg, files: access.Stamp(c.cfg.Files()...), checked: time.Now()}
	if c.cfg.TLS.IsSet() {
		if k.tls, err = c.cfg.TLS.NewSession(tlsSection); err != nil {
			return nil, err
		}
	}
	if k.net, err = c.cfg.Dial(ctx, "tcp", addr); err != nil {
		return nil, c.DialError(ctx, addr, err)
	}
	passed(sinks.StepConnect, "to "+k.net.RemoteAddr().String(), false)
	if k.tls != nil {
		tc, err := k.tls.Handshake(ctx, k.net, addr, c.cfg.RequestTimeout)
		if err != nil {
			return nil, err
		}
		text, warn := k.tls.Details(tc.ConnectionState())
		passed(sinks.StepTLS, text, warn)
		k.net = tc
	}
	k.proto = protocol.NewConn(k.net, clientID)
	if err = k.negotiate(ctx, passed); err == nil && c.cfg.SASL.Mechanism != "" {
		err = k.authenticate(ctx, &c.aws, passed)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	k.exchanges = 0
	return k, nil
}

// DialError returns why there is no connection to addr. An address that is not configured comes from the metadata.
func (c *Client) DialError(ctx context.Context, addr string, err error) error {
	err = access.DialError(ctx, addr, "kafka.brokers", min(reach.Timeout, c.cfg.RequestTimeout), err)
	known, ok := errors.AsType[*sinks.ConnectError](err)
	if !ok || slices.Contains(c.cfg.Brokers, addr) {
		return err
	}
	known.Key = ""
	known.Remedy = "the cluster tells its clients to go there: set advertised.listeners of that broker to an address " +
		"that can be reached from here"
	return known
}

// fail returns the error of a step with this broker.
func (k *conn) fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Address: k.addr, Key: key, Remedy: remedy, Err: err}
}

// negotiate learns the broker's API versions.
func (k *conn) negotiate(ctx context.Context, passed Passed) error {
	msg, err := k.exchange(ctx, new(apiversions.Request))
	if err != nil {
		return k.negotiateError(ctx, err)
	}
	res := msg.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return k.fail(sinks.StepProtocol, "kafka.brokers", "",
			fmt.Errorf("asked for its API versions: %w", kafkago.Error(res.ErrorCode)))
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, api := range res.ApiKeys {
		key := protocol.ApiKey(api.ApiKey)
		versions[key] = key.SelectVersion(api.MinVersion, api.MaxVersion)
	}
	const headersSince = 3 // version of the Produce request with record headers: Kafka 0.11
	if versions[protocol.Produce] < headersSince {
		return k.fail(sinks.StepProtocol, "", "use a newer broker",
			errors.New("it is older than Kafka 0.11 and takes no record headers"))
	}
	k.proto.SetVersions(versions)
	passed(sinks.StepProtocol,
		fmt.Sprintf("%d APIs, Produce up to version %d", len(versions), versions[protocol.Produce]), false)
	return nil
}

// negotiateError explains the error of the first exchange, which is where many mistakes in the configuration show.
func (k *conn) negotiateError(ctx context.Context, err error) error {
	const check = "see whether kafka.brokers names a Kafka broker"
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case k.tls != nil && k.tls.Refused(err):
		return k.tls.Failure(k.addr, k.cfg.RequestTimeout, err)
	case k.tls == nil && strings.Contains(err.Error(), "expecting TLS"): // kafka-go's words for a TLS alert
		return k.fail(sinks.StepTLS, "kafka.tls",
			"set kafka.tls.enabled: true, or connect to the port of the plaintext listener",
			errors.New("it answers in TLS, and kafka.tls is not set"))
	case k.tls == nil && access.Closed(err):
		return k.fail(sinks.StepTLS, "kafka.tls",
			"set kafka.tls.enabled: true if it is a TLS listener, or correct kafka.brokers",
			errors.New("it closed the connection at the first request, as a TLS listener or another server does"))
	case access.TimedOut(err):
		return k.fail(sinks.StepProtocol, "kafka.brokers", check+", and whether it is overloaded",
			access.Words(os.ErrDeadlineExceeded, "asked for its API versions, it gives no answer within %v",
				k.cfg.RequestTimeout))
	}
	return k.fail(sinks.StepProtocol, "kafka.brokers", check, fmt.Errorf("asked for its API versions: %w", err))
}

// exchange sends a request and waits for its answer, for the request timeout at most and not longer than ctx. After an
// error the connection must be closed.
func (k *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := k.net.SetDeadline(time.Now().Add(k.cfg.RequestTimeout)); err != nil {
		return nil, k.plainCause(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = k.net.SetDeadline(time.Unix(1, 0)) })
	res, err := k.proto.RoundTrip(req)
	if !stop() { // the deadline is, or will be, in the past
		k.broken = true
	}
	k.used = time.Now()
	k.exchanges++
	if err != nil {
		return nil, k.plainCause(ctx, err)
	}
	return res, nil
}

// usable reports whether a request may be sent on the connection.
func (k *conn) usable(now time.Time) bool {
	return !k.broken && now.Sub(k.used) < maxIdle && (k.expires.IsZero() || now.Before(k.expires))
}

func (k *conn) close() { _ = k.net.Close() } // even if it fails, the connection is gone

// plainCause returns err without the local port, so that its text is the same at each attempt.
func (k *conn) plainCause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: %w", k.cfg.RequestTimeout, os.ErrDeadlineExceeded)
	}
	return access.Plain(err)
}

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
	// tlsSection is the TLS section in a sink's configuration.
	tlsSection = "kafka.tls"
	// maxIdle is shorter than the idle timeouts of brokers (connections.max.idle.ms: 10 minutes) and of most load
	// balancers. A connection that was idle for longer is not reused: if the other side closed it, the failure would look
	// like a lost acknowledgement.
	maxIdle = 4 * time.Minute
)

// conn is an open connection to one broker, after TLS, version negotiation and authentication. Only one goroutine may
// use it at a time.
type conn struct {
	addr  string
	cfg   *Config
	net   net.Conn
	tls   *access.Session // nil if the connection does not use TLS
	proto *protocol.Conn

	used      time.Time // the end of the last exchange
	expires   time.Time // when the SASL session expires; zero if it does not expire
	exchanges int       // the number of exchanges since authentication
	broken    bool

	files   [sha256.Size]byte // the stamp of the files when the connection was opened
	checked time.Time         // the time of the last comparison with the files
	warned  string            // the last logged error about changed files
}

// Passed is called with every successful step of opening a connection.
type Passed func(step, detail string, warn bool)

// dial connects to the broker at addr. If dial fails, no request has reached the broker.
func (c *Client) dial(ctx context.Context, addr string) (*conn, error) {
	k, err := c.open(ctx, addr, func(string, string, bool) {})
	if err != nil {
		return nil, &brokerError{addr: addr, err: err}
	}
	return k, nil
}

// Try opens a connection to the broker at addr, as Send does, and keeps the connection for later calls to Send.
func (c *Client) Try(ctx context.Context, addr string, passed Passed) error {
	k, err := c.open(ctx, addr, passed)
	if err != nil {
		return err
	}
	// If the listener requires SASL, only this request fails.
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

// DialError explains why a connection to addr cannot be opened. If addr is not configured, it comes from the metadata.
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

// fail returns the error of a failed step with this broker.
func (k *conn) fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Address: k.addr, Key: key, Remedy: remedy, Err: err}
}

// negotiate requests the API versions that the broker supports.
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
			errors.New("it is older than Kafka 0.11 and does not support record headers"))
	}
	k.proto.SetVersions(versions)
	passed(sinks.StepProtocol,
		fmt.Sprintf("%d APIs, Produce up to version %d", len(versions), versions[protocol.Produce]), false)
	return nil
}

// negotiateError explains the error of the first exchange. Many configuration mistakes cause an error there.
func (k *conn) negotiateError(ctx context.Context, err error) error {
	const check = "see whether kafka.brokers names a Kafka broker"
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case k.tls != nil && k.tls.Refused(err):
		return k.tls.Failure(k.addr, k.cfg.RequestTimeout, err)
	case k.tls == nil && strings.Contains(err.Error(), "expecting TLS"): // kafka-go's error message for a TLS alert
		return k.fail(sinks.StepTLS, "kafka.tls",
			"set kafka.tls.enabled: true, or connect to the port of the plaintext listener",
			errors.New("it expects TLS, but kafka.tls is not set"))
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

// exchange sends a request and waits for the response until the request timeout expires or ctx is done. After an error,
// the caller must close the connection.
func (k *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := k.net.SetDeadline(time.Now().Add(k.cfg.RequestTimeout)); err != nil {
		return nil, k.plainCause(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = k.net.SetDeadline(time.Unix(1, 0)) })
	res, err := k.proto.RoundTrip(req)
	if !stop() { // The deadline is in the past, or will be soon.
		k.broken = true
	}
	k.used = time.Now()
	k.exchanges++
	if err != nil {
		return nil, k.plainCause(ctx, err)
	}
	return res, nil
}

// usable reports whether the connection can be used for another request.
func (k *conn) usable(now time.Time) bool {
	return !k.broken && now.Sub(k.used) < maxIdle && (k.expires.IsZero() || now.Before(k.expires))
}

func (k *conn) close() { _ = k.net.Close() } // Even if Close fails, the connection is closed.

// plainCause returns err without the local port, so the error text is the same for every attempt.
func (k *conn) plainCause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: %w", k.cfg.RequestTimeout, os.ErrDeadlineExceeded)
	}
	return access.Plain(err)
}

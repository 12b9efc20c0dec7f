package wire

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const (
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
	*protocol.Conn

	addr string
	cfg  *Config
	tls  *access.Session // nil if the connection does not use TLS

	steps []diagnose.Finding // the successful steps of opening the connection

	used      time.Time // the end of the last exchange
	expires   time.Time // the end of the SASL session; zero if it has no end
	exchanges int       // the number of exchanges since authentication

	files   [sha256.Size]byte // the stamp of the files that were tried last
	checked time.Time         // when the files were last checked for changes
}

func (c *Client) newConn(addr string) *conn {
	return &conn{addr: addr, cfg: c.Config, files: access.Stamp(c.Config.Files()...), checked: time.Now()}
}

// dial connects to the broker at addr. If dial fails, no request has reached the broker.
func (c *Client) dial(ctx context.Context, addr string) (*conn, error) {
	k := c.newConn(addr)
	if err := k.open(ctx, c); err != nil {
		return nil, &brokerError{addr: addr, err: err}
	}
	return k, nil
}

// Try opens a connection to the broker at addr, as Send does, and keeps the connection for later calls to Send. It
// returns the steps. Only the last step can have failed.
func (c *Client) Try(ctx context.Context, addr string) []diagnose.Finding {
	k := c.newConn(addr)
	err := k.open(ctx, c)
	if err == nil {
		c.put(k)
		_, err = c.Send(ctx, addr, &metadata.Request{TopicNames: []string{}}) // fails if the listener requires SASL
	}
	if err != nil {
		return append(k.steps, diagnose.Failed(sinks.StepConnect, addr, err))
	}
	return k.steps
}

func (k *conn) open(ctx context.Context, c *Client) (err error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.RequestTimeout)
	defer cancel()
	if k.cfg.TLS.IsSet() {
		if k.tls, err = k.cfg.TLS.NewSession(tlsSection); err != nil {
			return err
		}
	}
	nc, err := k.cfg.Dial(ctx, "tcp", k.addr)
	if err != nil {
		return c.DialError(ctx, k.addr, err)
	}
	k.pass(sinks.StepConnect, "to "+nc.RemoteAddr().String(), "")
	if k.tls != nil {
		tc, err := k.tls.Handshake(ctx, nc, k.addr, k.cfg.RequestTimeout)
		if err != nil {
			return err
		}
		text, warn := k.tls.Details(tc.ConnectionState())
		warning := ""
		if warn {
			warning = "renew the certificate"
		}
		k.pass(sinks.StepTLS, text, warning)
		nc = tc
	}
	k.Conn = protocol.NewConn(nc, cmp.Or(k.cfg.ClientID, "deltabridge"))
	if err = k.negotiate(ctx); err == nil && k.cfg.SASL.Mechanism != "" {
		err = k.authenticate(ctx, c)
	}
	if err != nil {
		k.close()
	}
	k.exchanges = 0
	return err
}

// pass adds a successful step. If remedy is not empty, the step passed with a warning.
func (k *conn) pass(step, detail, remedy string) {
	k.steps = append(k.steps, diagnose.Finding{
		Step: step, Target: k.addr, Detail: detail, Remedy: remedy, Warn: remedy != "",
	})
}

// DialError explains why a connection to addr cannot be opened. If addr is not configured, it comes from the metadata.
func (c *Client) DialError(ctx context.Context, addr string, err error) error {
	err = access.DialError(ctx, addr, "kafka.brokers", min(reach.Timeout, c.Config.RequestTimeout), err)
	known, ok := errors.AsType[*sinks.ConnectError](err)
	if !ok || slices.Contains(c.Config.Brokers, addr) {
		return err
	}
	known.Key = ""
	known.Remedy = "the cluster advertises this address: set advertised.listeners of that broker to an address " +
		"that is reachable from here"
	return known
}

// fail returns the error of a failed step with this broker.
func (k *conn) fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Address: k.addr, Key: key, Remedy: remedy, Err: err}
}

// negotiate requests the API versions that the broker supports.
func (k *conn) negotiate(ctx context.Context) error {
	msg, err := k.exchange(ctx, new(apiversions.Request))
	if err != nil {
		return k.negotiateError(ctx, err)
	}
	res := msg.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return k.fail(sinks.StepProtocol, "kafka.brokers", "",
			fmt.Errorf("API versions request: %w", kafkago.Error(res.ErrorCode)))
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, api := range res.ApiKeys {
		key := protocol.ApiKey(api.ApiKey)
		versions[key] = key.SelectVersion(api.MinVersion, api.MaxVersion)
	}
	const headersSince = 3 // version of the Produce request with record headers: Kafka 0.11
	if versions[protocol.Produce] < headersSince {
		return k.fail(sinks.StepProtocol, "", "use a newer broker",
			errors.New("the broker is older than Kafka 0.11 and does not support record headers"))
	}
	k.SetVersions(versions)
	k.pass(sinks.StepProtocol,
		fmt.Sprintf("%d APIs, Produce up to version %d", len(versions), versions[protocol.Produce]), "")
	return nil
}

// negotiateError explains the error of the first exchange. Many configuration mistakes cause an error there.
func (k *conn) negotiateError(ctx context.Context, err error) error {
	const check = "check that kafka.brokers contains the address of a Kafka broker"
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case k.tls != nil && k.tls.Refused(err):
		return k.tls.Failure(k.addr, k.cfg.RequestTimeout, err)
	case k.tls == nil && strings.Contains(err.Error(), "expecting TLS"): // kafka-go's error message for a TLS alert
		return k.fail(sinks.StepTLS, "kafka.tls",
			"set kafka.tls.enabled: true, or connect to the port of the plaintext listener",
			errors.New("the broker expects TLS, but kafka.tls is not set"))
	case k.tls == nil && access.Closed(err):
		return k.fail(sinks.StepTLS, "kafka.tls",
			"set kafka.tls.enabled: true if it is a TLS listener, or correct kafka.brokers",
			errors.New("the server closed the connection after the first request, as a TLS listener does"))
	case access.TimedOut(err):
		return k.fail(sinks.StepProtocol, "kafka.brokers", check+" and that it is not overloaded",
			access.Words(os.ErrDeadlineExceeded, "no response to the API versions request within %v",
				k.cfg.RequestTimeout))
	}
	return k.fail(sinks.StepProtocol, "kafka.brokers", check, fmt.Errorf("API versions request: %w", err))
}

// exchange sends a request and waits for the response until the request timeout expires or ctx is done. After an error,
// the caller must close the connection.
func (k *conn) exchange(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if err := k.SetDeadline(time.Now().Add(k.cfg.RequestTimeout)); err != nil {
		return nil, k.plainCause(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	res, err := k.RoundTrip(req)
	if !stop() { // The deadline is in the past, or will be soon.
		k.expires = time.Now()
	}
	k.used = time.Now()
	k.exchanges++
	if err != nil {
		return nil, k.plainCause(ctx, err)
	}
	return res, nil
}

// isUsable reports whether the connection can be used for another request.
func (k *conn) isUsable(now time.Time) bool {
	return now.Sub(k.used) < maxIdle && (k.expires.IsZero() || now.Before(k.expires))
}

func (k *conn) close() { _ = k.Close() } // Even if Close fails, the connection is closed.

// plainCause returns err without the local port, so the error text is the same for every attempt.
func (k *conn) plainCause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no response within %v: %w", k.cfg.RequestTimeout, os.ErrDeadlineExceeded)
	}
	return access.Plain(err)
}

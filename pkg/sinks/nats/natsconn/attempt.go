package natsconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// Attempt is a connection to one server that does not reconnect. It contains a finding for each step.
type Attempt struct {
	Conn     *natsgo.Conn // nil if Err is set; the caller closes it
	Err      error
	Findings []diagnose.Finding // one per step, including the failed one
	Denials

	servers *Access
	url     *url.URL
	addr    string // host:port
	timeout time.Duration
	session *access.Session
	dial    dialer
}

// First tries all servers concurrently. It returns the first successful attempt in the order of the URLs, and the
// findings of all servers. If no attempt succeeded, the error contains the causes.
func (a *Access) First(ctx context.Context) (first *Attempt, findings []diagnose.Finding, err error) {
	all := make([]*Attempt, len(a.URLs))
	var wg sync.WaitGroup
	for i, raw := range a.URLs {
		wg.Go(func() { all[i] = a.attempt(ctx, raw) })
	}
	wg.Wait()
	var errs []error
	for _, t := range all {
		findings = append(findings, t.Findings...)
		switch {
		case t.Err != nil:
			errs = append(errs, t.Err)
		case first == nil:
			first = t
		default:
			t.Conn.Close()
		}
	}
	if first == nil {
		return nil, findings, cmp.Or(ctx.Err(), access.Join("nats server ", errs))
	}
	return first, findings, nil
}

func (a *Access) attempt(ctx context.Context, raw string) *Attempt {
	t := &Attempt{servers: a, timeout: min(connectTimeout, a.Timeout)}
	t.Conn, t.Err = t.connect(ctx, raw)
	if conn := t.dial.conn; conn != nil {
		t.passed(sinks.StepConnect, "to "+conn.RemoteAddr().String())
	}
	if t.Err == nil {
		t.report()
	} else {
		t.Findings = append(t.Findings, diagnose.Failed(sinks.StepConnect, cmp.Or(t.addr, "nats.url"), t.Err))
	}
	return t
}

func (t *Attempt) connect(ctx context.Context, raw string) (_ *natsgo.Conn, err error) {
	if t.session, err = t.servers.TLS.NewSession(tlsSection); err != nil {
		return nil, err
	}
	if t.url, t.addr, err = ServerAddress(raw); err != nil { // err may contain credentials
		err = errors.New("it is not a valid URL")
		return nil, &sinks.ConnectError{Step: sinks.StepResolve, Key: "nats.url", Err: err, Rejected: true}
	}
	opts, err := t.servers.options(t.session)
	if err != nil {
		return nil, t.explain(ctx, err)
	}
	conn, err := t.dial.connect(ctx, t.url.String(), append(opts,
		natsgo.Name("deltabridge check"), natsgo.NoReconnect(), natsgo.IgnoreDiscoveredServers(), natsgo.Timeout(t.timeout),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { t.note(err) }),
	))
	switch {
	case err != nil:
		return nil, t.explain(ctx, err)
	case !conn.HeadersSupported():
		conn.Close()
		return nil, t.fail(sinks.StepProtocol, "", "use nats-server 2.2 or newer, and enable headers",
			errors.New("the server does not support headers"))
	}
	return conn, nil
}

func (t *Attempt) fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Address: t.addr, Key: key, Remedy: remedy, Err: err}
}

func (t *Attempt) passed(step, detail string) *diagnose.Finding {
	t.Findings = append(t.Findings, diagnose.Finding{Step: step, Target: t.addr, Detail: detail})
	return &t.Findings[len(t.Findings)-1]
}

// report adds the findings of the steps after the TCP connection. All these steps have passed.
func (t *Attempt) report() {
	detail := fmt.Sprintf("nats-server %s %q", t.Conn.ConnectedServerVersion(), t.Conn.ConnectedServerName())
	if cluster := t.Conn.ConnectedClusterName(); cluster != "" {
		detail += fmt.Sprintf(", of cluster %q", cluster)
	}
	t.passed(sinks.StepProtocol, fmt.Sprintf("%s, max_payload %d", detail, t.Conn.MaxPayload()))
	state, err := t.Conn.TLSConnectionState()
	if err == nil {
		text, soon := t.session.Details(state)
		if f := t.passed(sinks.StepTLS, text); soon {
			f.Warn, f.Remedy = true, "renew the certificate"
		}
	}
	auth := &t.servers.Auth
	if *auth == (Auth{}) && !t.Conn.AuthRequired() {
		return
	}
	f := t.passed(sinks.StepAuthenticate, auth.Who())
	if err != nil && (auth.TokenFile != "" || auth.User != "") {
		f.Warn, f.Detail = true, f.Detail+": the secret is sent without encryption"
		f.Remedy = "enable TLS on the server, or use an nkey or credentials, which are never sent"
	}
}

// explain converts an error from nats.go to a ConnectError.
func (t *Attempt) explain(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*sinks.ConnectError](err); ok { // the error of a file
		known.Address = cmp.Or(known.Address, t.addr)
		return known
	}
	const key, check = "nats.url", "check that nats.url is the address of a NATS server"
	words := strings.ToLower(err.Error())
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case t.dial.conn == nil:
		return access.DialError(ctx, t.addr, key, min(reach.Timeout, t.timeout), err)
	case errors.Is(err, natsgo.ErrNoInfoReceived):
		return t.fail(sinks.StepProtocol, key, "correct the port in nats.url", errors.New("it is not a NATS server"))
	case errors.Is(err, natsgo.ErrSecureConnWanted):
		return t.fail(sinks.StepTLS, "nats.tls", "enable TLS on the server, or remove nats.tls and use nats:// in nats.url",
			errors.New("the server does not offer TLS"))
	case strings.Contains(words, "authorization violation"), strings.Contains(words, "authentication expired"),
		strings.Contains(words, "authentication revoked"), errors.Is(err, natsgo.ErrNkeysNotSupported):
		e := t.servers.Auth.rejected(err)
		e.Address = t.addr
		return e
	case t.session.Refused(err), errors.Is(err, natsgo.ErrTLS):
		if both, ok := err.(interface{ Unwrap() []error }); ok { // ErrTLS and the cause
			err = both.Unwrap()[1]
		}
		return t.session.Failure(t.addr, t.timeout, err)
	case access.TimedOut(err), errors.Is(err, natsgo.ErrTimeout):
		err = access.Words(os.ErrDeadlineExceeded, "it accepts the connection, but does not respond within %v", t.timeout)
		return t.fail(sinks.StepProtocol, key, check+" that does not require TLS at once (handshake_first)", err)
	case strings.HasPrefix(t.url.Scheme, "ws"):
		err = access.Words(err, "it does not respond as a WebSocket")
		return t.fail(sinks.StepProtocol, key, "check that nats.url has the WebSocket port of a NATS server", err)
	}
	return t.fail(sinks.StepProtocol, key, check+" with room for another client", access.Plain(err))
}

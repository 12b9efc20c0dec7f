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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// expiresSoon is how long before credentials expire a warning is reported.
const expiresSoon = 7 * 24 * time.Hour

// Attempt is a connection to one server that does not reconnect.
type Attempt struct {
	Conn      *natsgo.Conn // the caller closes it
	JetStream jetstream.JetStream
	Denials

	access   *Access
	url      *url.URL
	addr     string // host:port
	timeout  time.Duration
	session  *access.Session
	findings []diagnose.Finding // one per step, including the failed one
	err      error
}

// First tries all servers concurrently. It returns the first successful attempt in the order of the URLs, and the
// findings of all servers, with one finding for each step. If no attempt succeeded, the error contains the causes.
func (a *Access) First(ctx context.Context) (first *Attempt, findings []diagnose.Finding, err error) {
	all := make([]*Attempt, len(a.URLs))
	var wg sync.WaitGroup
	for i, raw := range a.URLs {
		wg.Go(func() { all[i] = a.attempt(ctx, raw) })
	}
	wg.Wait()
	var errs []error
	for _, t := range all {
		findings = append(findings, t.findings...)
		switch {
		case t.err != nil:
			errs = append(errs, t.err)
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
	t := &Attempt{access: a, timeout: min(connectTimeout, a.Timeout)}
	if t.err = t.connect(ctx, raw); t.err != nil {
		if known, ok := errors.AsType[*sinks.ConnectError](t.err); ok {
			known.Address = t.addr
		}
		t.findings = append(t.findings, diagnose.Failed(sinks.StepConnect, cmp.Or(t.addr, "nats.url"), t.err))
	}
	return t
}

func (t *Attempt) connect(ctx context.Context, raw string) (err error) {
	if t.url, t.addr, err = serverAddress(raw); err != nil { // err may contain credentials
		err = errors.New("the URL is not valid")
		return &sinks.ConnectError{Step: sinks.StepResolve, Key: "nats.url", Err: err, Rejected: true}
	}
	var opts []natsgo.Option
	if opts, t.session, err = t.access.options(); err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	tcp, err := reach.Dial(dialing, "tcp", t.addr)
	if err != nil {
		return access.DialError(ctx, t.addr, "nats.url", min(reach.Timeout, t.timeout), err)
	}
	t.passed(sinks.StepConnect, "to "+tcp.RemoteAddr().String())
	defer context.AfterFunc(ctx, func() { _ = tcp.Close() })()
	name := natsgo.Name(cmp.Or(t.access.ConnectionName, "deltabridge") + " check")
	t.Conn, err = natsgo.Connect(t.url.String(), append(opts, natsgo.SetCustomDialer(opened{tcp}), natsgo.SkipHostLookup(),
		name, natsgo.NoReconnect(), natsgo.IgnoreDiscoveredServers(), natsgo.Timeout(t.timeout),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { t.note(err) }),
	)...)
	switch {
	case err != nil:
		_ = tcp.Close()
		return t.explain(ctx, err)
	case !t.Conn.HeadersSupported():
		t.Conn.Close()
		return fail(sinks.StepProtocol, "", "use nats-server 2.2 or newer, and enable headers",
			errors.New("the server does not support headers"))
	}
	t.report()
	t.JetStream, err = t.access.jetStream(t.Conn)
	return err
}

func fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Key: key, Remedy: remedy, Err: err}
}

func (t *Attempt) passed(step, detail string) *diagnose.Finding {
	t.findings = append(t.findings, diagnose.Finding{Step: step, Target: t.addr, Detail: detail})
	return &t.findings[len(t.findings)-1]
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
	auth := &t.access.Auth
	if *auth == (Auth{}) && !t.Conn.AuthRequired() {
		return
	}
	c, _ := auth.read() // who is set even if read fails
	f := t.passed(sinks.StepAuthenticate, c.who)
	if left := time.Until(c.expires).Round(time.Second); !c.expires.IsZero() {
		f.Detail += fmt.Sprintf(", valid for %v", left)
		if left < expiresSoon {
			f.Warn, f.Remedy = true, "renew the credentials"
		}
	}
	if err != nil && (auth.TokenFile != "" || auth.User != "") {
		f.Warn, f.Detail = true, f.Detail+": the secret is sent without encryption"
		f.Remedy = "enable TLS on the server, or use an nkey or credentials, which are never sent"
	}
}

// explain converts an error from nats.go to a ConnectError.
func (t *Attempt) explain(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*sinks.ConnectError](err); ok { // the error of a file
		return known
	}
	const key, check = "nats.url", "check that nats.url is the address of a NATS server"
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case errors.Is(err, natsgo.ErrNoInfoReceived):
		return fail(sinks.StepProtocol, key, "correct the port in nats.url", errors.New("it is not a NATS server"))
	case errors.Is(err, natsgo.ErrSecureConnWanted):
		return fail(sinks.StepTLS, "nats.tls", "enable TLS on the server, or remove nats.tls and use nats:// in nats.url",
			errors.New("the server does not offer TLS"))
	case isAuthError(err), errors.Is(err, natsgo.ErrNkeysNotSupported):
		return t.access.Auth.rejected(err)
	case t.session.Refused(err), errors.Is(err, natsgo.ErrTLS):
		if both, ok := err.(interface{ Unwrap() []error }); ok { // ErrTLS and the cause
			err = both.Unwrap()[1]
		}
		return t.session.Failure(t.addr, t.timeout, err)
	case access.TimedOut(err), errors.Is(err, natsgo.ErrTimeout):
		err = access.Words(os.ErrDeadlineExceeded, "it accepts the connection, but does not respond within %v", t.timeout)
		return fail(sinks.StepProtocol, key, check+" that does not require TLS at once (handshake_first)", err)
	case strings.HasPrefix(t.url.Scheme, "ws"):
		err = access.Words(err, "the WebSocket handshake failed")
		return fail(sinks.StepProtocol, key, "check that nats.url has the WebSocket port of a NATS server", err)
	}
	return fail(sinks.StepProtocol, key, check+", and that its connection limit is not reached", access.Plain(err))
}

// isAuthError reports whether the server rejected the credentials. nats.go wraps its own errors for that only partly.
func isAuthError(err error) bool {
	text := strings.ToLower(fmt.Sprint(err))
	return strings.Contains(text, "authorization violation") || strings.Contains(text, "authentication expired") ||
		strings.Contains(text, "authentication revoked")
}

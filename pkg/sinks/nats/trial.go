package nats

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// serverInfo is what of a server's greeting matters here.
type serverInfo struct {
	known        bool
	Name         string `json:"server_name"`
	Version      string `json:"version"`
	Cluster      string `json:"cluster"`
	Headers      bool   `json:"headers"`
	JetStream    bool   `json:"jetstream"`
	TLSRequired  bool   `json:"tls_required"`
	TLSAvailable bool   `json:"tls_available"`
	AuthRequired bool   `json:"auth_required"`
	Nonce        string `json:"nonce"`
	MaxPayload   int64  `json:"max_payload"`
}

// trial is the way to one server, step by step: what nats.go does at once, and tells less of.
type trial struct {
	sink    *Sink
	session *access.Session
	url     *url.URL
	addr    string // host:port
	timeout time.Duration
	passed  func(step, detail string, warn bool)
	denials *denials // of the connection that run returns

	info serverInfo
}

// newTrial takes one of the configured URLs. Only Sink.cfg is used: trials may run at once, also beside a Send.
func (s *Sink) newTrial(raw string) (*trial, error) {
	session, err := s.cfg.TLS.NewSession(tlsSection)
	if err != nil {
		return nil, err
	}
	u, addr, err := serverAddress(raw)
	if err != nil {
		return nil, &sinks.ConnectError{Step: sinks.StepResolve, Key: "nats.url", Err: errors.New("it is no URL"), Rejected: true} // err repeats what it holds
	}
	return &trial{
		sink: s, session: session, url: u, addr: addr,
		timeout: min(connectTimeout, s.cfg.AckTimeout), denials: new(denials),
		passed: func(string, string, bool) {},
	}, nil
}

// serverAddress is host:port of a server's URL, with the default port that nats.go takes.
func serverAddress(raw string) (*url.URL, string, error) {
	if !strings.Contains(raw, "://") { // as nats.go does
		raw = "nats://" + raw
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, "", err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	}
	if port == "" {
		port = "4222"
	}
	return u, net.JoinHostPort(u.Hostname(), port), nil
}

func (t *trial) fail(step, key, remedy string, err error) error {
	return &sinks.ConnectError{Step: step, Address: t.addr, Key: key, Remedy: remedy, Err: err}
}

// run goes all the way. The caller closes the connection.
func (t *trial) run(ctx context.Context) (*natsgo.Conn, error) {
	ws := strings.HasPrefix(t.url.Scheme, "ws")
	if err := t.greet(ctx, ws); err != nil {
		return nil, err
	}
	conn, err := t.connect(ctx)
	if err != nil {
		return nil, t.connectError(ctx, err)
	}
	if ws {
		t.passed(sinks.StepProtocol, fmt.Sprintf("nats-server %s over WebSocket", conn.ConnectedServerVersion()), false)
	}
	if _, file := t.sink.cfg.Auth.file(); file != "" || t.info.AuthRequired {
		detail, bare := t.sink.cfg.Auth.who(), false
		if _, err := conn.TLSConnectionState(); err != nil && (t.sink.cfg.Auth.TokenFile != "" || t.sink.cfg.Auth.User != "") {
			detail, bare = detail+", without TLS: whoever is on the way can read the secret", true
		}
		t.passed(sinks.StepAuthenticate, detail, bare)
	}
	return conn, nil
}

// greet connects, reads the greeting and secures the connection, and closes it again: a client of nats.go can't take it
// over. Of a WebSocket only the TCP connection is tried.
func (t *trial) greet(ctx context.Context, ws bool) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if host := t.url.Hostname(); net.ParseIP(host) == nil {
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return access.DialError(ctx, t.addr, "nats.url", t.timeout, err)
		}
		t.passed(sinks.StepResolve, strings.Join(ips, ", "), false)
	}
	nc, err := reach.Dial(ctx, "tcp", t.addr)
	if err != nil {
		return access.DialError(ctx, t.addr, "nats.url", min(reach.Timeout, t.timeout), err)
	}
	defer nc.Close()
	t.passed(sinks.StepConnect, "to "+nc.RemoteAddr().String(), false)
	if ws {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	if err := t.readInfo(ctx, nc); err != nil {
		return err
	}
	t.passed(sinks.StepProtocol, t.info.describe(), false)

	wanted := t.sink.cfg.TLS.IsSet() || t.url.Scheme == "tls"
	switch {
	case wanted && !t.info.TLSRequired && !t.info.TLSAvailable:
		key, remedy := "nats.tls", "leave nats.tls out, or enable TLS on the server"
		if t.url.Scheme == "tls" {
			key, remedy = "nats.url", "write nats:// in nats.url, or enable TLS on the server"
		}
		return t.fail(sinks.StepTLS, key, remedy, errors.New("it is configured, and the server offers none"))
	case wanted || t.info.TLSRequired:
		tc, err := t.session.Handshake(ctx, nc, t.addr, t.timeout)
		if err != nil {
			return err
		}
		text, warn := t.session.Details(tc.ConnectionState())
		t.passed(sinks.StepTLS, text, warn)
	}
	return nil
}

func (i *serverInfo) describe() string {
	parts := []string{fmt.Sprintf("nats-server %s %q", i.Version, i.Name)}
	if i.Cluster != "" {
		parts = append(parts, fmt.Sprintf("of cluster %q", i.Cluster))
	}
	return strings.Join(append(parts, fmt.Sprintf("max_payload %d", i.MaxPayload)), ", ")
}

// maxInfo is more than any greeting has, also that of a large cluster with its addresses.
const maxInfo = 64 << 10

func (t *trial) readInfo(ctx context.Context, nc net.Conn) error {
	line, err := bufio.NewReaderSize(nc, maxInfo).ReadSlice('\n')
	const key = "nats.url"
	text, isInfo := strings.CutPrefix(string(line), "INFO ")
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case err != nil && access.TimedOut(err):
		return t.fail(sinks.StepProtocol, key, "see whether nats.url names a NATS server, and whether it hangs, or wants TLS before its greeting (handshake_first)",
			access.Words(os.ErrDeadlineExceeded, "it accepts the connection, and then says nothing for %v", t.timeout))
	case err != nil && len(line) == 0:
		return t.fail(sinks.StepProtocol, key, "see whether nats.url names a NATS server, and whether it has room for one more client",
			access.Words(err, "it closes the connection without a greeting"))
	case !isInfo || json.Unmarshal([]byte(text), &t.info) != nil:
		return t.fail(sinks.StepProtocol, key, "correct nats.url: the port is another service's", errors.New("it does not greet as a NATS server does"))
	}
	t.info.known = true
	if !t.info.Headers {
		return t.fail(sinks.StepProtocol, "", "use nats-server 2.2 or newer, and leave its headers enabled", errors.New("the server takes no headers"))
	}
	return nil
}

// connect makes a connection of nats.go's to this one server, which does not reconnect.
func (t *trial) connect(ctx context.Context) (*natsgo.Conn, error) {
	opts, err := t.sink.accessOptions(t.session, t.sink.cfg.TLS.IsSet() || t.url.Scheme != "ws")
	if err != nil {
		return nil, err
	}
	d := new(dialer)
	opts = append(opts,
		natsgo.Name("deltabridge check"), natsgo.NoReconnect(), natsgo.Timeout(t.timeout), natsgo.SetCustomDialer(d),
		natsgo.DontRandomize(),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { t.denials.note(err) }),
	)
	d.begin(ctx)
	stop := context.AfterFunc(ctx, d.interrupt)
	defer stop()
	conn, err := natsgo.Connect(t.url.String(), opts...)
	d.end()
	if err != nil {
		if cause := d.lastError(); cause != nil && errors.Is(err, natsgo.ErrNoServers) {
			err = cause
		}
	}
	return conn, err
}

// connectError is what nats.go says of a failed connection, in words.
func (t *trial) connectError(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*sinks.ConnectError](err); ok { // of a file
		if known.Address == "" {
			known.Address = t.addr
		}
		return known
	}
	var op *net.OpError
	words := strings.ToLower(err.Error())
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return context.Cause(ctx)
	case strings.Contains(words, "authorization violation"), strings.Contains(words, "authentication expired"),
		strings.Contains(words, "authentication revoked"), errors.Is(err, natsgo.ErrNkeysNotSupported):
		e := t.sink.authError(&t.info, err)
		e.Address = t.addr
		return e
	case t.session.Refused(err), errors.Is(err, natsgo.ErrTLS):
		return t.session.Failure(t.addr, t.timeout, err)
	case errors.As(err, &op) && op.Op == "dial":
		return access.DialError(ctx, t.addr, "nats.url", min(reach.Timeout, t.timeout), err)
	case access.TimedOut(err), errors.Is(err, natsgo.ErrTimeout):
		return t.fail(sinks.StepProtocol, "nats.url", "see whether the server is overloaded",
			access.Words(os.ErrDeadlineExceeded, "no answer within %v", t.timeout))
	case strings.HasPrefix(t.url.Scheme, "ws"):
		return t.fail(sinks.StepProtocol, "nats.url", "see whether nats.url names the WebSocket port of a NATS server", access.Words(err, "it does not answer as a WebSocket"))
	}
	return t.fail(sinks.StepAuthenticate, "", "", access.Plain(err))
}

// diagnose tries each server step by step and says why none will do. If it finds nothing wrong, err stands.
func (s *Sink) diagnose(ctx context.Context, err error) error {
	urls := strings.Split(s.urls(), ",")
	errs := make([]error, len(urls))
	var wg sync.WaitGroup
	for i, raw := range urls {
		wg.Go(func() {
			t, err := s.newTrial(strings.TrimSpace(raw))
			if err != nil {
				errs[i] = err
				return
			}
			conn, err := t.run(ctx)
			if errs[i] = err; err == nil {
				conn.Close()
			}
		})
	}
	wg.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case slices.Contains(errs, nil):
		return err
	}
	return access.Join("nats server ", errs)
}

// denials are the permission violations of a connection. The server tells them apart from what was asked, so that a
// request that is denied would wait for its answer in vain.
type denials struct {
	mu     sync.Mutex
	last   error
	cancel context.CancelCauseFunc
}

// note takes the errors of a connection's ErrorHandler.
func (d *denials) note(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	if d.cancel != nil {
		d.cancel(err)
	}
}

func (d *denials) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = nil
}

// during is a context that ends when something is denied. end gives up watching; it returns the last denial.
func (d *denials) during(ctx context.Context) (_ context.Context, end func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel = cancel
	return ctx, func() error {
		cancel(nil)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cancel = nil
		return d.last
	}
}

// denied is a permission violation in words. doing is what it stood in the way of.
func (s *Sink) denied(doing string, err error) *sinks.ConnectError {
	words := strings.TrimPrefix(err.Error(), natsgo.ErrPermissionViolation.Error()+": ")
	e := &sinks.ConnectError{Step: sinks.StepAuthorize, Err: access.Words(err, "%s: %s", doing, words), Rejected: true}
	_, rest, _ := strings.Cut(words, ` to "`)
	subject, _, _ := strings.Cut(rest, `"`)
	switch {
	case strings.HasPrefix(subject, "_INBOX."):
		e.Remedy = fmt.Sprintf("let %s subscribe to _INBOX.>, on the server", s.cfg.Auth.who())
	case strings.HasPrefix(subject, "$"):
		e.Remedy = fmt.Sprintf("let %s publish to %s, on the server", s.cfg.Auth.who(), subject)
	default:
		e.Key = "nats.subject"
		e.Remedy = fmt.Sprintf("let %s publish to %s, on the server, or change nats.subject", s.cfg.Auth.who(), s.subject.Wildcard())
	}
	return e
}

package natsconn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/test/certs"
)

func newAuthority(t *testing.T, name string) *certs.Authority {
	t.Helper()
	a, err := certs.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Every way to fail names step, key and remedy. It is Rejected only if the server has answered, and never repeats the
// secret.
func TestFailedAttempts(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	caFile := writeFile(t, "ca.crt", ours.PEM())
	wrong := writeFile(t, "secret", []byte("wr0ng-secret"))
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := user.Seed()
	seedFile := writeFile(t, "nkey", seed)
	stranger, _ := nkeys.CreateUser()
	known, _ := stranger.PublicKey()

	_, plain := startServer(t, nil)
	_, password := startServer(t, func(o *server.Options) { o.Username, o.Password = "bridge", "s3cret" })
	_, nkey := startServer(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: known}} })
	_, full := startServer(t, func(o *server.Options) { o.MaxConn = -1 })
	_, headless := startServer(t, func(o *server.Options) { o.NoHeaderSupport = true })
	_, tls := startServer(t, secure(t, ours, time.Hour, false))
	_, foreign := startServer(t, secure(t, other, time.Hour, false))
	_, expired := startServer(t, secure(t, ours, -time.Hour, false))
	_, mutual := startServer(t, secure(t, ours, time.Hour, true))
	silence, web := says(t, ""), says(t, "HTTP/1.1 400 Bad Request\r\n")
	withCA := access.TLS{CAFile: caFile}
	for _, c := range []struct {
		name, url string
		auth      Auth
		tls       access.TLS
		step, key string
		text      string // in the error
		rejected  bool
	}{
		{
			"wrong password", "nats://" + password,
			Auth{User: "bridge", PasswordFile: wrong},
			access.TLS{},
			sinks.StepAuthenticate, "nats.passwordFile", `it rejects user "bridge" (nats: Authorization Violation); check nats.user`, true,
		},
		{
			"no credentials", "nats://" + password,
			Auth{},
			access.TLS{},
			sinks.StepAuthenticate, "nats.credentialsFile", "it requires credentials (nats: Authorization Violation); set nats.credentialsFile", true,
		},
		{
			"token for a password", "nats://" + password,
			Auth{TokenFile: wrong},
			access.TLS{},
			sinks.StepAuthenticate, "nats.tokenFile", "it rejects the token", true,
		},
		{
			"unknown nkey", "nats://" + nkey,
			Auth{NkeyFile: seedFile},
			access.TLS{},
			sinks.StepAuthenticate, "nats.nkeyFile", "add that public key to the server's users", true,
		},
		{
			"nkeys not supported", "nats://" + plain,
			Auth{NkeyFile: seedFile},
			access.TLS{},
			sinks.StepAuthenticate, "nats.nkeyFile", "it supports neither nkeys nor JWTs", true,
		},
		{
			"missing file", "nats://" + password,
			Auth{TokenFile: wrong + ".gone"},
			access.TLS{},
			sinks.StepFiles, "nats.tokenFile", "mount the file, or correct nats.tokenFile", false,
		},
		{
			"missing CA", "nats://" + tls,
			Auth{},
			access.TLS{CAFile: wrong + ".gone"},
			sinks.StepFiles, "nats.tls.caFile", "mount the file, or correct nats.tls.caFile", false,
		},
		{
			"TLS not offered", "nats://" + plain,
			Auth{},
			withCA,
			sinks.StepTLS, "nats.tls", "enable TLS on the server, or remove nats.tls", false,
		},
		{
			"TLS by scheme not offered", "tls://" + plain,
			Auth{},
			access.TLS{},
			sinks.StepTLS, "nats.tls", "the server does not offer TLS", false,
		},
		{
			"unknown CA", "nats://" + foreign,
			Auth{},
			withCA,
			sinks.StepTLS, "nats.tls.caFile", `signed by "CN=other"`, false,
		},
		{
			"other name", "nats://" + tls,
			Auth{},
			access.TLS{CAFile: caFile, ServerName: "other.example.com"},
			sinks.StepTLS, "nats.tls.serverName", "use a host name that is in the certificate", false,
		},
		{
			"expired", "nats://" + expired,
			Auth{},
			withCA,
			sinks.StepTLS, "", "renew the certificate of the server", false,
		},
		{
			"no client certificate", "nats://" + mutual,
			Auth{},
			withCA,
			sinks.StepTLS, "nats.tls.certFile", "set nats.tls.certFile and nats.tls.keyFile", false,
		},
		{
			"nothing listens", "nats://127.0.0.1:1",
			Auth{},
			access.TLS{},
			sinks.StepConnect, "nats.url", "start the broker, or correct the port in nats.url", false,
		},
		{
			"unknown host", "nats://nats.invalid",
			Auth{},
			access.TLS{},
			sinks.StepResolve, "nats.url", `there is no host "nats.invalid"`, false,
		},
		{
			"silence", "nats://" + silence,
			Auth{},
			access.TLS{},
			sinks.StepProtocol, "nats.url", "does not respond within 700ms", false,
		},
		{
			"another service", "nats://" + web,
			Auth{},
			access.TLS{},
			sinks.StepProtocol, "nats.url", "it is not a NATS server; correct the port in nats.url", false,
		},
		{
			"no WebSocket", "ws://" + plain,
			Auth{},
			access.TLS{},
			sinks.StepProtocol, "nats.url", "the WebSocket handshake failed", false,
		},
		{
			"full", "nats://" + full,
			Auth{},
			access.TLS{},
			sinks.StepProtocol, "nats.url", ", and that its connection limit is not reached", false,
		},
		{
			"no headers", "nats://" + headless,
			Auth{},
			access.TLS{},
			sinks.StepProtocol, "", "use nats-server 2.2 or newer, and enable headers", false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &Access{URLs: []string{c.url}, Auth: c.auth, TLS: c.tls, Timeout: 10 * time.Second}
			if c.name == "silence" {
				a.Timeout = 700 * time.Millisecond
			}
			attempt, findings, err := a.First(t.Context())
			if attempt != nil {
				attempt.Conn.Close()
				t.Fatal("it succeeds")
			}
			e, ok := errors.AsType[*sinks.ConnectError](err)
			if !ok {
				t.Fatalf("not explained: %v", err)
			}
			if e.Step != c.step || e.Key != c.key || sinks.IsRejected(err) != c.rejected || e.Address == "" ||
				!strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "nats server "+e.Address+": ") {
				t.Errorf("%+v: %v\nwant %s of %s, %q", e, err, c.step, c.key, c.text)
			}
			if e.Advice() == "" || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("advice %q of %v", e.Advice(), err)
			}
			last := findings[len(findings)-1]
			if last.Err == nil || last.Step != c.step || last.Target != e.Address || last.Remedy == "" {
				t.Errorf("finding %+v", last)
			}
		})
	}
}

func steps(findings []diagnose.Finding) (out []string) {
	for _, f := range findings {
		text := f.Step
		if f.Warn {
			text += " warns: " + f.Remedy
		}
		if f.Err != nil {
			text += " failed"
		}
		out = append(out, text)
	}
	return out
}

// What passes is reported step by step, with a warning about a secret that anyone can read, and a certificate that
// expires soon.
func TestFindings(t *testing.T) {
	authority := newAuthority(t, "ours")
	tls := access.TLS{CAFile: writeFile(t, "ca.crt", authority.PEM())}
	auth := Auth{User: "bridge", PasswordFile: writeFile(t, "password", []byte("s3cret\n"))}
	demand := func(o *server.Options) { o.Username, o.Password = "bridge", "s3cret" }
	both := func(lifetime time.Duration) func(*server.Options) {
		encrypt := secure(t, authority, lifetime, false)
		return func(o *server.Options) { demand(o); encrypt(o) }
	}
	const bare = "authenticate warns: enable TLS on the server, or use an nkey or credentials, which are never sent"
	for _, c := range []struct {
		name   string
		server func(*server.Options)
		access Access
		want   []string
	}{
		{"open", nil, Access{}, []string{"connect", "protocol"}},
		{"password in the clear", demand, Access{Auth: auth}, []string{"connect", "protocol", bare}},
		{"credentials nobody asked for", nil, Access{Auth: auth}, []string{"connect", "protocol", bare}},
		{"password over TLS", both(240 * time.Hour), Access{Auth: auth, TLS: tls}, []string{"connect", "protocol", "TLS", "authenticate"}},
		{
			"certificate for another day", both(24 * time.Hour),
			Access{Auth: auth, TLS: tls},
			[]string{"connect", "protocol", "TLS warns: renew the certificate", "authenticate"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, addr := startServer(t, c.server)
			c.access.URLs, c.access.Timeout = []string{"nats://" + addr}, 10*time.Second
			attempt, findings, err := c.access.First(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer attempt.Conn.Close()
			if diff := cmp.Diff(c.want, steps(findings)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(findings[1].Detail, "max_payload 1048576") || findings[1].Target != addr {
				t.Errorf("%+v", findings[1])
			}
		})
	}
}

// All servers are tried. The attempt of the first URL that works is the result, and the others are closed; what does
// not work is among the findings.
func TestFirstOfSeveral(t *testing.T) {
	one, first := startServer(t, nil)
	two, second := startServer(t, nil)
	a := &Access{URLs: []string{"nats://127.0.0.1:1", "nats://" + first, "nats://" + second}, Timeout: 10 * time.Second}
	attempt, findings, err := a.First(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer attempt.Conn.Close()
	if got := attempt.Conn.ConnectedAddr(); got != first {
		t.Errorf("connected to %s, not to %s", got, first)
	}
	want := []string{"connect failed", "connect", "protocol", "connect", "protocol"}
	if diff := cmp.Diff(want, steps(findings)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for deadline := time.Now().Add(2 * time.Minute); two.NumClients() > 0 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if one.NumClients() != 1 || two.NumClients() != 0 {
		t.Errorf("%d and %d clients, want 1 and none", one.NumClients(), two.NumClients())
	}
}

// An attempt ends with its context, and the error is the context's: nobody is to blame.
func TestCanceledAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silence := says(t, "")
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	_, _, err := (&Access{URLs: []string{"nats://" + silence}, Timeout: 5 * time.Minute}).First(ctx)
	if !errors.Is(err, context.Canceled) || time.Since(start) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if _, ok := errors.AsType[*sinks.ConnectError](err); ok {
		t.Errorf("blamed: %v", err)
	}
}

// Several causes are in one error, each with its server.
func TestAllCauses(t *testing.T) {
	web := says(t, "HTTP/1.1 400 Bad Request\r\n")
	a := &Access{URLs: []string{"nats://" + web, "nats://127.0.0.1:1"}, Timeout: 10 * time.Second}
	_, findings, err := a.First(t.Context())
	text := fmt.Sprint(err)
	if !strings.HasPrefix(text, "nats server "+web+": protocol: it is not a NATS server") ||
		!strings.Contains(text, "; nats server 127.0.0.1:1: connect: nothing listens there") {
		t.Error(err)
	}
	if got := steps(findings); !slices.Equal(got, []string{"connect", "protocol failed", "connect failed"}) {
		t.Errorf("%q", got)
	}
}

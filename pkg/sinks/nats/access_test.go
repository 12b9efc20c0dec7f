package nats_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// blamed is sinktest.Blamed, as a type of this package's own.
type blamed struct{ Step, Key, Text string }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// pki is an authority for servers and clients.
type pki struct {
	*certs.Authority
	caFile string
}

func newPKI(t *testing.T, name string) pki {
	t.Helper()
	a := must(certs.New(name))
	return pki{a, writeFile(t, "ca.crt", a.PEM())}
}

// server lets the server use TLS, and demand a client certificate if mutual.
func (p pki) server(mutual bool) func(*server.Options) {
	return func(o *server.Options) {
		cert, key := mustPair(p.Issue(certs.Options{Name: "server", Hosts: []string{"127.0.0.1", "nats.example.com"}}))
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(p.PEM())
		o.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{must(tls.X509KeyPair(cert, key))},
			ClientCAs:    pool,
			MinVersion:   tls.VersionTLS12,
		}
		if mutual {
			o.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
}

func mustPair(a, b []byte, err error) (_, _ []byte) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// client makes the files of a client certificate.
func (p pki) client(t *testing.T, o certs.Options) access.TLS {
	t.Helper()
	certFile, keyFile, err := p.IssueFiles(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return access.TLS{CAFile: p.caFile, CertFile: certFile, KeyFile: keyFile}
}

// operator is a server's trust in JWTs, with one account that may use JetStream.
type operator struct{ account nkeys.KeyPair }

func (op *operator) trust(o *server.Options) {
	root, system := must(nkeys.CreateOperator()), must(nkeys.CreateAccount())
	op.account = must(nkeys.CreateAccount())
	claims := jwt.NewOperatorClaims(must(root.PublicKey()))
	claims.Name = "test"
	resolver := new(server.MemAccResolver)
	for name, pair := range map[string]nkeys.KeyPair{"SYS": system, "APP": op.account} {
		account := jwt.NewAccountClaims(must(pair.PublicKey()))
		account.Name = name
		if name == "APP" {
			account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		if err := resolver.Store(must(pair.PublicKey()), must(account.Encode(root))); err != nil {
			panic(err)
		}
	}
	o.TrustedOperators = []*jwt.OperatorClaims{must(jwt.DecodeOperatorClaims(must(claims.Encode(root))))}
	o.AccountResolver, o.SystemAccount = resolver, must(system.PublicKey())
}

// credentials are those of a new user of the account. expires: 0 for never.
func (op *operator) credentials(account nkeys.KeyPair, name string, expires time.Duration) []byte {
	pair := must(nkeys.CreateUser())
	claims := jwt.NewUserClaims(must(pair.PublicKey()))
	claims.Name = name
	if expires != 0 {
		claims.Expires = time.Now().Add(expires).Unix()
	}
	return must(jwt.FormatUserConfig(must(claims.Encode(account)), must(pair.Seed())))
}

func nkeyUser() (public string, seed []byte) {
	pair := must(nkeys.CreateUser())
	return must(pair.PublicKey()), must(pair.Seed())
}

// TestRightAccess: each kind of authentication, and TLS, against a server that demands it.
func TestRightAccess(t *testing.T) {
	p := newPKI(t, "authority")
	public, seed := nkeyUser()
	op := new(operator)
	webAddr := natsserver.FreePort(t)
	websocket := func(secure func(*server.Options)) func(*server.Options) {
		return func(o *server.Options) {
			o.Websocket = server.WebsocketOpts{Host: "127.0.0.1", NoTLS: secure == nil}
			_, _ = fmt.Sscanf(webAddr, "127.0.0.1:%d", &o.Websocket.Port)
			if secure != nil {
				var other server.Options
				secure(&other)
				o.Websocket.TLSConfig = other.TLSConfig
			}
		}
	}
	for name, c := range map[string]struct {
		server func(*server.Options)
		client func(*nats.Config)
	}{
		"password": {
			func(o *server.Options) { o.Username, o.Password = "bridge", "s3cret" },
			func(c *nats.Config) {
				c.Auth = natsconn.Auth{User: "bridge", PasswordFile: writeFile(t, "password", []byte("s3cret\n"))}
			},
		},
		"token": {
			func(o *server.Options) { o.Authorization = "t0ken" },
			func(c *nats.Config) { c.Auth.TokenFile = writeFile(t, "token", []byte("t0ken\n")) },
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			func(c *nats.Config) { c.Auth.NkeyFile = writeFile(t, "bridge.nk", append(seed, '\n')) },
		},
		"credentials": {
			op.trust,
			func(c *nats.Config) {
				c.Auth.CredentialsFile = writeFile(t, "bridge.creds", op.credentials(op.account, "bridge", time.Hour))
			},
		},
		"TLS": {p.server(false), func(c *nats.Config) { c.TLS.CAFile = p.caFile }},
		"TLS by its scheme": {p.server(false), func(c *nats.Config) {
			c.TLS.CAFile = p.caFile
			c.URLs[0] = strings.Replace(c.URLs[0], "nats:", "tls:", 1)
		}},
		"server name": {p.server(false), func(c *nats.Config) {
			c.TLS = access.TLS{CAFile: p.caFile, ServerName: "nats.example.com"}
		}},
		"mutual TLS": {p.server(true), func(c *nats.Config) { c.TLS = p.client(t, certs.Options{Name: "bridge"}) }},
		"WebSocket":  {websocket(nil), func(c *nats.Config) { c.URLs = []string{"ws://" + webAddr} }},
		"WebSocket over TLS": {websocket(p.server(false)), func(c *nats.Config) {
			c.URLs = []string{"wss://" + webAddr}
			c.TLS.CAFile = p.caFile
		}},
		"several URLs, one of them dead": {func(*server.Options) {}, func(c *nats.Config) {
			c.URLs = append([]string{"nats://127.0.0.1:1"}, c.URLs...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := secured(t, c.server)
			b.edit = c.client
			send(t, connect(t, b), sinktest.Message("a", 1, 100))
			if strings.Contains(name, "dead") {
				return
			}
			inOneRound(t, func() error {
				for _, f := range b.NewSink(t).(*nats.Sink).Check(t.Context()) {
					if f.Err != nil {
						return fmt.Errorf("check: %s %s: %w", f.Step, f.Target, f.Err)
					}
				}
				return nil
			})
		})
	}
}

// TestWrongAccess: if the client may not connect, the error contains the reason and the configuration key to look at.
func TestWrongAccess(t *testing.T) {
	t.Parallel()
	p, other := newPKI(t, "authority"), newPKI(t, "another authority")
	plain := secured(t, func(*server.Options) {})
	password := secured(t, func(o *server.Options) { o.Username, o.Password = "bridge", "s3cret" })
	token := secured(t, func(o *server.Options) { o.Authorization = "t0ken" })
	public, _ := nkeyUser()
	_, seed := nkeyUser()
	nkey := secured(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	op := new(operator)
	operated := secured(t, op.trust)
	secure, mutual := secured(t, p.server(false)), secured(t, p.server(true))
	expired := secured(t, func(o *server.Options) {
		p.server(false)(o)
		cert, key := mustPair(p.Issue(certs.Options{Name: "server", Hosts: []string{"127.0.0.1"}, Lifetime: -time.Hour}))
		o.TLSConfig.Certificates = []tls.Certificate{must(tls.X509KeyPair(cert, key))}
	})
	silence, web := silent(t, ""), silent(t, "HTTP/1.1 400 Bad Request\r\n")
	wrong := writeFile(t, "secret", []byte("wr0ng-secret"))
	foreign := must(nkeys.CreateAccount())
	for _, c := range []struct {
		name   string
		broker *broker
		edit   func(*nats.Config)
		want   blamed
	}{
		{
			"wrong password", password, func(c *nats.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: wrong} },
			blamed{sinks.StepAuthenticate, "nats.passwordFile", `nats server ADDR: authenticate: it rejects user "bridge" (nats: Authorization Violation); check nats.user and the content of nats.passwordFile`},
		},
		{
			"no credentials", password, func(*nats.Config) {},
			blamed{sinks.StepAuthenticate, "nats.credentialsFile", "nats server ADDR: authenticate: it requires credentials (nats: Authorization Violation); set nats.credentialsFile, nats.nkeyFile, nats.tokenFile, or nats.user and nats.passwordFile"},
		},
		{
			"wrong token", token, func(c *nats.Config) { c.Auth.TokenFile = wrong },
			blamed{sinks.StepAuthenticate, "nats.tokenFile", "nats server ADDR: authenticate: it rejects the token (nats: Authorization Violation); check the content of nats.tokenFile"},
		},
		{
			"wrong nkey", nkey, func(c *nats.Config) { c.Auth.NkeyFile = writeFile(t, "bridge.nk", seed) },
			blamed{sinks.StepAuthenticate, "nats.nkeyFile", "nats server ADDR: authenticate: it rejects the nkey with the public key NKEY (nats: Authorization Violation); add that public key to the server's users, or correct the seed in nats.nkeyFile"},
		},
		{
			"a file that is no nkey", nkey, func(c *nats.Config) { c.Auth.NkeyFile = wrong },
			blamed{sinks.StepFiles, "nats.nkeyFile", "files: secret does not contain the seed of a user nkey, which begins with SU (see nats.nkeyFile)"},
		},
		{
			"nkey where a password is wanted", password, func(c *nats.Config) { c.Auth.NkeyFile = writeFile(t, "bridge.nk", seed) },
			blamed{sinks.StepAuthenticate, "nats.nkeyFile", "nats server ADDR: authenticate: it supports neither nkeys nor JWTs (nats: nkeys not supported by the server); use nats.tokenFile, or nats.user and nats.passwordFile (see nats.nkeyFile)"},
		},
		{
			"credentials of another account", operated, func(c *nats.Config) {
				c.Auth.CredentialsFile = writeFile(t, "bridge.creds", op.credentials(foreign, "bridge", 0))
			},
			blamed{sinks.StepAuthenticate, "nats.credentialsFile", `nats server ADDR: authenticate: it rejects the credentials with the public key NKEY (nats: Authorization Violation); check that the credentials in nats.credentialsFile belong to an account of this server and are neither expired nor revoked`},
		},
		{
			"expired credentials", operated, func(c *nats.Config) {
				c.Auth.CredentialsFile = writeFile(t, "bridge.creds", op.credentials(op.account, "bridge", -time.Hour))
			},
			blamed{sinks.StepAuthenticate, "nats.credentialsFile", `nats server ADDR: authenticate: it rejects the credentials with the public key NKEY (nats: Authorization Violation); check that the credentials in nats.credentialsFile belong to an account of this server and are neither expired nor revoked`},
		},
		{
			"a file that holds no credentials", operated, func(c *nats.Config) { c.Auth.CredentialsFile = wrong },
			blamed{sinks.StepFiles, "nats.credentialsFile", "files: secret does not contain the seed of a user nkey, which begins with SU (see nats.credentialsFile)"},
		},
		{
			"password where JWTs are wanted", operated, func(c *nats.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: wrong} },
			blamed{sinks.StepAuthenticate, "nats.passwordFile", `nats server ADDR: authenticate: it rejects user "bridge" (nats: Authorization Violation); check nats.user and the content of nats.passwordFile`},
		},
		{
			"missing file", password, func(c *nats.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: wrong + ".gone"} },
			blamed{sinks.StepFiles, "nats.passwordFile", "files: open secret.gone: no such file or directory; mount the file, or correct nats.passwordFile"},
		},
		{
			"wrong authority", secure, func(c *nats.Config) { c.TLS.CAFile = other.caFile },
			blamed{sinks.StepTLS, "nats.tls.caFile", `nats server ADDR: TLS: its certificate is signed by "CN=authority": tls: failed to verify certificate: x509: certificate signed by unknown authority; add the certificate of that CA to nats.tls.caFile`},
		},
		{
			"system authorities", secure, func(*nats.Config) {},
			blamed{sinks.StepTLS, "nats.tls.caFile", `nats server ADDR: TLS: its certificate is signed by "CN=authority": tls: failed to verify certificate: x509: certificate signed by unknown authority; add the certificate of that CA to nats.tls.caFile`},
		},
		{
			"wrong host", secure, func(c *nats.Config) { c.TLS = access.TLS{CAFile: p.caFile, ServerName: "other.example.com"} },
			blamed{sinks.StepTLS, "nats.tls.serverName", "nats server ADDR: TLS: tls: failed to verify certificate: x509: certificate is valid for nats.example.com, not other.example.com; use a host name that is in the certificate, or set nats.tls.serverName"},
		},
		{
			"expired certificate of the server", expired, func(c *nats.Config) { c.TLS.CAFile = p.caFile },
			blamed{sinks.StepTLS, "", "nats server ADDR: TLS: its certificate expired on DATE; renew the certificate of the server or its CA, or correct the clock of this machine"},
		},
		{
			"no client certificate", mutual, func(c *nats.Config) { c.TLS.CAFile = p.caFile },
			blamed{sinks.StepTLS, "nats.tls.certFile", "nats server ADDR: TLS: it requires a client certificate; set nats.tls.certFile and nats.tls.keyFile"},
		},
		{
			"expired client certificate", mutual, func(c *nats.Config) { c.TLS = p.client(t, certs.Options{Name: "bridge", Lifetime: -time.Hour}) },
			blamed{sinks.StepTLS, "nats.tls.certFile", "nats server ADDR: TLS: it rejects the client certificate; check that nats.tls.certFile has not expired, and that the server trusts its CA"},
		},
		{
			"client certificate of another authority", mutual, func(c *nats.Config) {
				c.TLS = other.client(t, certs.Options{Name: "bridge"})
				c.TLS.CAFile = p.caFile
			},
			blamed{sinks.StepTLS, "nats.tls.certFile", `nats server ADDR: TLS: it rejects the client certificate; check that nats.tls.certFile has not expired, and that the server trusts its CA`},
		},
		{
			"TLS where there is none", plain, func(c *nats.Config) { c.TLS.CAFile = p.caFile },
			blamed{sinks.StepTLS, "nats.tls", "nats server ADDR: TLS: the server does not offer TLS; enable TLS on the server, or remove nats.tls and use nats:// in nats.url"},
		},
		{
			"TLS by its scheme where there is none", plain, func(c *nats.Config) { c.URLs = []string{"tls://" + plain.Addr()} },
			blamed{sinks.StepTLS, "nats.tls", "nats server ADDR: TLS: the server does not offer TLS; enable TLS on the server, or remove nats.tls and use nats:// in nats.url"},
		},
		{
			"nobody there", plain, func(c *nats.Config) { c.URLs = []string{"nats://127.0.0.1:1"} },
			blamed{sinks.StepConnect, "nats.url", "nats server 127.0.0.1:1: connect: nothing listens there (connection refused); start the broker, or correct the port in nats.url"},
		},
		{
			"unknown host", plain, func(c *nats.Config) { c.URLs = []string{"nats://nats.invalid"} },
			blamed{sinks.StepResolve, "nats.url", `nats server nats.invalid:4222: resolve: there is no host "nats.invalid"; correct the name in nats.url, or the DNS record`},
		},
		{
			"silence", plain, func(c *nats.Config) { c.URLs = []string{"nats://" + silence}; c.AckTimeout = 300 * time.Millisecond },
			blamed{sinks.StepProtocol, "nats.url", "nats server ADDR: protocol: it accepts the connection, but does not respond within 300ms; check that nats.url is the address of a NATS server that does not require TLS at once (handshake_first)"},
		},
		{
			"another service", plain, func(c *nats.Config) { c.URLs = []string{"nats://" + web} },
			blamed{sinks.StepProtocol, "nats.url", "nats server ADDR: protocol: it is not a NATS server; correct the port in nats.url"},
		},
		{
			"no WebSocket", plain, func(c *nats.Config) { c.URLs = []string{"ws://" + plain.Addr()} },
			blamed{sinks.StepProtocol, "nats.url", "nats server ADDR: protocol: the WebSocket handshake failed; check that nats.url has the WebSocket port of a NATS server"},
		},
		{
			"missing stream", plain, func(c *nats.Config) { c.Stream.Create = false },
			blamed{sinks.StepStream, "nats.stream.create", "stream: stream K8S does not exist; create it, correct nats.stream.name, or set nats.stream.create: true"},
		},
		{
			"too many replicas", plain, func(c *nats.Config) { c.Stream.Replicas = 3 },
			blamed{sinks.StepStream, "nats.stream.replicas", "stream: cannot create stream K8S: replicas > 1 not supported in non-clustered mode; set at most as many replicas as the cluster has servers with JetStream (see nats.stream.replicas)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.broker.edit = c.edit
			sink := c.broker.NewSink(t).(*nats.Sink)
			defer closeSink(t, sink)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var err error
			for range rounds {
				err = sink.Connect(ctx)
				if e, ok := errors.AsType[*sinks.ConnectError](err); ok && e.Step == c.want.Step {
					break
				}
			}
			addr := c.broker.Addr()
			for _, a := range []string{silence, web} {
				if strings.Contains(fmt.Sprint(err), a) {
					addr = a
				}
			}
			got := blamed(sinktest.Blame(t, err, addr))
			got.Text = regexp.MustCompile(`\bU[A-Z2-7]{55}\b`).ReplaceAllString(got.Text, "NKEY")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Connect (-want +got):\n%s", diff)
			}
			if err != nil && strings.Contains(err.Error(), "wr0ng") {
				t.Error("it repeats the secret")
			}
			if c.name == "too many replicas" { // the check creates no stream
				return
			}
			inOneRound(t, func() error {
				if steps := sinktest.Failures(sink.Check(ctx)); len(steps) == 0 || steps[0] != c.want.Step {
					return fmt.Errorf("check: failures %v", steps)
				}
				return nil
			})
		})
	}
}

// rounds is how often something is tried that a machine that stands still for a second can prevent.
const rounds = 5

// inOneRound fails the test if check returns an error in each round.
func inOneRound(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for range rounds {
		if err = check(); err == nil {
			return
		}
	}
	t.Error(err)
}

// silent accepts connections, and says greeting and nothing more.
func silent(t *testing.T, greeting string) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			nc, err := l.Accept()
			if err != nil {
				for _, nc := range open {
					_ = nc.Close()
				}
				return
			}
			_, _ = nc.Write([]byte(greeting))
			open = append(open, nc)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// TestSeveralURLs: when the server of the connection goes away, another of the URLs takes over.
func TestSeveralURLs(t *testing.T) {
	one, two := newBroker(t), newBroker(t)
	two.Stop(t)
	one.edit = func(c *nats.Config) { c.URLs = append(c.URLs, "nats://"+two.Addr()) }
	sink := connect(t, one)
	send(t, sink, sinktest.Message("a", 1, 100))
	two.Start(t)
	one.Stop(t)
	defer one.Start(t)
	var err error
	for range 10 {
		if err = try(t, sink, sinktest.Message("a", 2, 100))[0]; err == nil {
			break
		}
	}
	if n := len(two.messages(t)); err != nil || n != 1 {
		t.Errorf("%d messages on the other server, %v", n, err)
	}
}

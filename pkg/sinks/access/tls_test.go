package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
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

// serve accepts connections and lets answer handle each of them. It returns the address.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			answer(nc)
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// serveTLS completes handshakes, and demands a client certificate if mutual. What it reads it sends back.
func serveTLS(t *testing.T, a *certs.Authority, o certs.Options, mutual bool) string {
	t.Helper()
	cert, key, err := a.Issue(o)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    x509.NewCertPool(),
		MinVersion:   tls.VersionTLS12,
	}
	config.ClientCAs.AppendCertsFromPEM(a.PEM())
	if mutual {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return serve(t, func(nc net.Conn) {
		tc := tls.Server(nc, config)
		buf := make([]byte, 1)
		if _, err := tc.Read(buf); err == nil {
			_, _ = tc.Write(buf)
		}
	})
}

// shake connects, makes a handshake, and exchanges a byte, because with TLS 1.3 a server refuses a client only then.
func shake(
	t *testing.T, settings access.TLS, address string, timeout time.Duration,
) (text string, soon bool, err error) {
	t.Helper()
	session, err := settings.NewSession("x.tls")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	tc, err := session.Handshake(ctx, nc, address, timeout)
	if err != nil {
		return "", false, err
	}
	defer tc.Close()
	if _, err = tc.Write([]byte("a")); err == nil {
		_, err = tc.Read(make([]byte, 1))
	}
	if err != nil && session.Refused(err) {
		return "", false, session.Failure(address, timeout, err)
	}
	text, soon = session.Details(tc.ConnectionState())
	return text, soon, err
}

// Each failure of a handshake is about a key, with what to do; what works says until when.
func TestHandshake(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	dir := t.TempDir()
	caFile := filepath.Join(dir, "ca.crt")
	write(t, caFile, string(ours.PEM()))
	client := func(a *certs.Authority, lifetime time.Duration) access.TLS {
		t.Helper()
		certFile, keyFile, err := a.IssueFiles(t.TempDir(), certs.Options{Name: "bridge", Lifetime: lifetime})
		if err != nil {
			t.Fatal(err)
		}
		return access.TLS{CAFile: caFile, CertFile: certFile, KeyFile: keyFile}
	}
	server := certs.Options{Name: "server", Hosts: []string{"127.0.0.1"}, Lifetime: 240 * time.Hour}
	old, brief := server, server
	old.Lifetime, brief.Lifetime = -time.Hour, time.Hour
	plain, mutual := serveTLS(t, ours, server, false), serveTLS(t, ours, server, true)
	closing := serve(t, func(net.Conn) {})
	greeting := serve(t, func(nc net.Conn) { _, _ = nc.Write([]byte("220 mail.example.com ESMTP\r\n")) })
	hold := make(chan struct{})
	silent := serve(t, func(net.Conn) { <-hold })
	t.Cleanup(func() { close(hold) }) // before the server's own clean-up
	withCA := access.TLS{CAFile: caFile}
	for _, c := range []struct {
		name, address string
		tls           access.TLS
		key, text     string // of the error, or of the details if key is -
		soon          bool
	}{
		{"well", plain, withCA, "-", `TLS 1.3; the server's certificate (signed by "CN=ours") is valid until 20`, false},
		{"well for an hour", serveTLS(t, ours, brief, false), withCA, "-", "is valid until 20", true},
		{"mutual", mutual, client(ours, 240*time.Hour), "-", `; the client certificate ("CN=bridge") is valid until 20`, false},
		{"mutual for an hour", mutual, client(ours, time.Hour), "-", `; the client certificate ("CN=bridge")`, true},
		{"unknown CA", serveTLS(t, other, server, false), withCA, "x.tls.caFile", `is signed by "CN=other"`, false},
		{
			"other name", plain,
			access.TLS{CAFile: caFile, ServerName: "b.example.com"},
			"x.tls.serverName",
			"use a host name that is in the certificate, or set x.tls.serverName", false,
		},
		{
			"expired", serveTLS(t, ours, old, false), withCA, "",
			"; renew the certificate of the server or its CA, or correct the clock", false,
		},
		{"no client certificate", mutual, withCA, "x.tls.certFile", "it requires a client certificate; set x.tls.certFile", false},
		{"expired client certificate", mutual, client(ours, -time.Hour), "x.tls.certFile", "it rejects the client certificate", false},
		{"client certificate of another CA", mutual, client(other, time.Hour), "x.tls.certFile", "that the server trusts its CA", false},
		{"closed at once", closing, withCA, "x.tls", "the server does not respond with TLS; remove x.tls, or connect to the port", false},
		{"another protocol", greeting, withCA, "x.tls", "the server does not respond with TLS", false},
		{"silence", silent, withCA, "x.tls", "no response to the TLS handshake within 1s; check that the port is a TLS listener", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			timeout := 2 * time.Minute
			if c.address == silent {
				timeout = time.Second
			}
			text, soon, err := shake(t, c.tls, c.address, timeout)
			if c.key == "-" {
				if err != nil || soon != c.soon || !strings.Contains(text, c.text) {
					t.Errorf("%q, soon %v, %v", text, soon, err)
				}
				return
			}
			e, ok := errors.AsType[*sinks.ConnectError](err)
			if !ok || e.Step != sinks.StepTLS || e.Address != c.address || e.Key != c.key ||
				!strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want one about %q: %s", err, c.key, c.text)
			}
		})
	}
}

// Files are read at each handshake, so a new CA is trusted, and a file that is gone is the error, without a new session.
func TestFilesOfASessionRotate(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	write(t, caFile, string(other.PEM()))
	settings := access.TLS{CAFile: caFile}
	session, err := settings.NewSession("x.tls")
	if err != nil {
		t.Fatal(err)
	}
	address := serveTLS(t, ours, certs.Options{Name: "server", Hosts: []string{"127.0.0.1"}}, false)
	handshake := func() error {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		tc, err := session.Handshake(t.Context(), nc, address, time.Second)
		if err == nil {
			_ = tc.Close()
		}
		return err
	}
	if err := handshake(); err == nil {
		t.Error("the CA is not trusted yet")
	}
	write(t, caFile, string(ours.PEM()))
	if err := handshake(); err != nil {
		t.Errorf("with the new CA: %v", err)
	}
	write(t, caFile, "garbage")
	e, ok := errors.AsType[*sinks.ConnectError](handshake())
	if !ok || e.Step != sinks.StepFiles || e.Key != "x.tls.caFile" {
		t.Errorf("with garbage: %v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	write(t, caFile, string(ours.PEM()))
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Handshake(ctx, nc, address, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

type settings struct {
	TLS access.TLS `yaml:"tls"`
}

func (s *settings) Validate(at *strictyaml.Section) { s.TLS.Validate(at.At("tls")) }

func TestValidateTLS(t *testing.T) {
	for text, want := range map[string]string{
		"tls: {enabled: true}":                      "",
		"tls: {serverName: a}":                      "",
		"tls: {certFile: tls_test.go}":              "tls.keyFile: is missing, but certFile is given",
		"tls: {keyFile: tls_test.go}":               "tls.certFile: is missing, but keyFile is given",
		"tls: {enabled: false, serverName: a}":      "tls.enabled: is false, but other keys of tls are given",
		"tls: {enabled: false}":                     "",
		"tls: {enabled: true, serverName: a.b.com}": "",
	} {
		s, at, err := decode(text)
		if err == nil {
			s.Validate(at)
			err = at.Err()
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func decode(text string) (*settings, *strictyaml.Section, error) {
	s, at := strictyaml.Decode[settings]("a.yaml", []byte(text))
	return s, at, at.Err()
}

func TestIsSet(t *testing.T) {
	if (&access.TLS{}).IsSet() || !(&access.TLS{Enabled: true}).IsSet() || !(&access.TLS{ServerName: "a"}).IsSet() {
		t.Error("TLS is used if any field is set, and only then")
	}
}

func TestShareServer(t *testing.T) {
	share := func(want bool, a, b string) {
		t.Helper()
		if got := access.ShareServer([]string{"other:1", a}, []string{b, "another:1"}); got != want {
			t.Errorf("%q and %q: %v", a, b, got)
		}
	}
	for host, same := range map[string]string{
		"": "127.0.0.1", "localhost": "127.0.0.1", "::1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1",
		"Kafka.Example.COM": "kafka.example.com", "10.0.0.1": "10.0.0.1",
	} {
		a, b := net.JoinHostPort(host, "4222"), net.JoinHostPort(same, "4222")
		share(true, a, b)
		share(true, b, a)
		share(false, a, net.JoinHostPort(same, "4223"))
		share(false, net.JoinHostPort(host, "0"), net.JoinHostPort(same, "0"))
		share(false, a, "10.0.0.2:4222")
	}
	share(false, "a", "a")
}

package nats_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/certs"
)

// TestRotatedFiles: each kind of secret is read again at a reconnection. Before the file has the new one, the error
// names the file's key; nobody restarts the sink.
func TestRotatedFiles(t *testing.T) {
	first, firstSeed := nkeyUser()
	second, secondSeed := nkeyUser()
	op := new(operator)
	old, renewed := newPKI(t, "old authority"), newPKI(t, "new authority")
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	clientCertificate := func(p pki, o certs.Options) access.TLS {
		t.Helper()
		c := access.TLS{CAFile: file("ca.crt", p.PEM())}
		var err error
		if c.CertFile, c.KeyFile, err = p.IssueFiles(dir, o); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, c := range map[string]struct {
		server func(*server.Options)
		client func(*nats.Config) // writes the files
		revoke func(*server.Options)
		rotate func() // writes the files with new credentials
		key    string
	}{
		"token": {
			func(o *server.Options) { o.Authorization = "one" },
			func(c *nats.Config) { c.Auth.TokenFile = file("token", []byte("one")) },
			func(o *server.Options) { o.Authorization = "two" },
			func() { file("token", []byte("two\n")) },
			"nats.tokenFile",
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: first}} },
			func(c *nats.Config) { c.Auth.NkeyFile = file("bridge.nk", firstSeed) },
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: second}} },
			func() { file("bridge.nk", secondSeed) },
			"nats.nkeyFile",
		},
		"credentials": {
			op.trust,
			func(c *nats.Config) {
				c.Auth.CredentialsFile = file("bridge.creds", op.credentials(op.account, "bridge", 0))
			},
			op.trust, // a new operator
			func() { file("bridge.creds", op.credentials(op.account, "bridge", 0)) },
			"nats.credentialsFile",
		},
		"certificates": {
			old.server(true),
			func(c *nats.Config) { c.TLS = clientCertificate(old, certs.Options{Name: "bridge"}) },
			renewed.server(true),
			func() { clientCertificate(renewed, certs.Options{Name: "bridge"}) },
			"nats.tls.caFile",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := secured(t, c.server)
			b.edit = func(cfg *nats.Config) {
				c.client(cfg)
				cfg.AckTimeout = 400 * time.Millisecond
				cfg.Stream.Storage = "memory"
			}
			sink := connect(t, b)
			send(t, sink, sinktest.Message("a", 1, 100))
			b.Stop(t)
			c.revoke(b.opts)
			b.Start(t)
			if err := awaitBlame(t, sink, c.key, sinktest.Message("a", 2, 100)); sinks.IsPermanent(err) {
				t.Errorf("with the old file: %v", err)
			}
			c.rotate()
			sendAll(t, sink, []*event.Message{sinktest.Message("a", 2, 100)})
		})
	}
}

// TestSwappedClientCertificate: one that has expired is told at the next connection, and a new one is used.
func TestSwappedClientCertificate(t *testing.T) {
	p := newPKI(t, "authority")
	b := secured(t, p.server(true))
	files := p.client(t, certs.Options{Name: "bridge"})
	b.edit = func(c *nats.Config) { c.TLS = files; c.AckTimeout = 400 * time.Millisecond }
	sink := connect(t, b)
	send(t, sink, sinktest.Message("a", 1, 100))
	dir := filepath.Dir(files.CertFile)
	if _, _, err := p.IssueFiles(dir, certs.Options{Name: "bridge", Lifetime: -time.Minute}); err != nil {
		t.Fatal(err)
	}
	send(t, sink, sinktest.Message("a", 2, 100)) // the connection stands
	b.Cut()
	err := awaitBlame(t, sink, "nats.tls.certFile", sinktest.Message("a", 3, 100))
	if !strings.Contains(err.Error(), "rejects the client certificate") {
		t.Errorf("with the expired certificate: %v", err)
	}
	if _, _, err := p.IssueFiles(dir, certs.Options{Name: "bridge"}); err != nil {
		t.Fatal(err)
	}
	sendAll(t, sink, []*event.Message{sinktest.Message("a", 3, 100)})
}

// awaitBlame sends a message until the error names a key, and returns the error. Before that, the connection may be lost,
// or an attempt to connect may take longer than the timeout.
func awaitBlame(t *testing.T, sink *nats.Sink, key string, m *event.Message) error {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := try(t, sink, m)[0]
		if e, ok := errors.AsType[*sinks.ConnectError](err); ok && e.Key == key {
			return err
		}
		if time.Now().After(deadline) {
			t.Fatalf("no error names %s: %v", key, err)
		}
	}
}

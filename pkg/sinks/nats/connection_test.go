package nats_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/scale"
)

// secured is a broker whose server has other options.
func secured(t *testing.T, edit func(*server.Options)) *broker {
	t.Helper()
	b := newBroker(t)
	b.Stop(t)
	edit(b.opts)
	b.Start(t)
	return b
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tryConnect connects a new sink, and tries again if the machine was too slow for a timeout.
func tryConnect(t *testing.T, b *broker) error {
	t.Helper()
	sink := b.NewSink(t).(*nats.Sink)
	defer closeSink(t, sink)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	late := regexp.MustCompile(`no answer within|does not respond within|server is disconnected|i/o timeout`)
	for round := 1; ; round++ {
		err := sink.Connect(ctx)
		if err == nil {
			send(t, sink, sinktest.Message("a", 1, 100))
		}
		if err == nil || round == rounds || !late.MatchString(err.Error()) {
			return err
		}
	}
}

func TestPasswordAndToken(t *testing.T) {
	password := writeFile(t, "password", []byte("secret\n"))
	b := secured(t, func(o *server.Options) { o.Username, o.Password = "bridge", "secret" })
	b.edit = func(c *nats.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password} }
	if err := tryConnect(t, b); err != nil {
		t.Errorf("with the password: %v", err)
	}
	if err := os.WriteFile(password, []byte("wr0ng"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tryConnect(
		t,
		b,
	); err == nil || !strings.Contains(err.Error(), "Authorization Violation") ||
		strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("with another password: %v", err)
	}
	b.edit = func(c *nats.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password + ".gone"} }
	if err := tryConnect(t, b); err == nil || !strings.Contains(err.Error(), "password.gone") {
		t.Errorf("without the file: %v", err)
	}
	b = secured(t, func(o *server.Options) { o.Authorization = "t0ken" })
	b.edit = func(c *nats.Config) { c.Auth.TokenFile = writeFile(t, "token", []byte("t0ken\n")) }
	if err := tryConnect(t, b); err != nil {
		t.Errorf("with the token: %v", err)
	}
}

// If the password is changed while the bridge runs, the sink is disconnected until the file contains the new password.
func TestRotatedPassword(t *testing.T) {
	password := writeFile(t, "password", []byte("one"))
	b := secured(t, func(o *server.Options) { o.Username, o.Password = "bridge", "one" })
	b.edit = func(c *nats.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password} }
	sink := connect(t, b)
	send(t, sink, sinktest.Message("a", 1, 100))
	b.Stop(t)
	b.opts.Password = "two"
	b.Start(t)
	if err := try(t, sink, sinktest.Message("a", 2, 100))[0]; err == nil || sinks.IsPermanent(err) {
		t.Errorf("with the old password: %v", err)
	}
	if err := os.WriteFile(password, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	sendAll(t, sink, []*event.Message{sinktest.Message("a", 2, 100)})
}

// A user who may not publish to the subject gets no acknowledgement; the error says why.
func TestPermissionViolation(t *testing.T) {
	password := writeFile(t, "password", []byte("secret"))
	b := secured(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"$JS.API.>"}},
		}}}
	})
	b.edit = func(c *nats.Config) {
		c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password}
	}
	sink := connect(t, b)
	err := try(t, sink, sinktest.Message("a", 1, 100))[0]
	if err == nil || sinks.IsPermanent(err) ||
		!strings.Contains(strings.ToLower(err.Error()), "permissions violation for publish to") {
		t.Errorf("Send: %v", err)
	}
}

func TestNoJetStream(t *testing.T) {
	b := secured(t, func(o *server.Options) { o.JetStream = false })
	if err := tryConnect(t, b); err == nil || !strings.Contains(err.Error(), "JetStream is not enabled") {
		t.Errorf("Connect: %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) { c.URLs = []string{"nats://127.0.0.1:1"} }
	if err := tryConnect(t, b); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Connect: %v", err)
	}
}

func TestTLS(t *testing.T) {
	cert, key := selfSigned(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	b := secured(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    pool,
			MinVersion:   tls.VersionTLS12,
		}
	})
	certFile, keyFile := writeFile(t, "tls.crt", cert), writeFile(t, "tls.key", key)
	b.edit = func(c *nats.Config) {
		c.TLS = access.TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "nats.example.com"}
	}
	if err := tryConnect(t, b); err != nil {
		t.Errorf("with the certificate: %v", err)
	}
	b.edit = func(c *nats.Config) {
		c.TLS = access.TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "other.example.com"}
	}
	if err := tryConnect(t, b); err == nil || !strings.Contains(err.Error(), "other.example.com") {
		t.Errorf("with another server name: %v", err)
	}
	b.edit = func(c *nats.Config) { c.TLS = access.TLS{CertFile: certFile, KeyFile: keyFile} }
	if err := tryConnect(t, b); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("without the CA: %v", err)
	}
}

// selfSigned makes a certificate for nats.example.com that is its own authority, for servers and clients.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"nats.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: der},
		), pem.EncodeToMemory(
			&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER},
		)
}

func TestConfigMistakesAreReportedTogether(t *testing.T) {
	for text, all := range map[string][]string{
		`{url: nats://127.0.0.1, credentialsFile: connection_test.go, tokenFile: connection_test.go, passwordFile: connection_test.go, tls: {certFile: connection_test.go},
		  embedded: {}, stream: {name: a.b, storage: tape, discard: all, replicas: 9}, subject: "k8s..{nme}", maxInFlight: -1, ackTimeout: -1ns}`: {
			"embedded: cannot be used together with url", `stream.name: "a.b" is not a valid name`, `stream.storage: "tape" is not a valid value`,
			`stream.discard: "all" is not a valid value`, "stream.replicas: 9 is too large", "subject: ", "maxInFlight: -1 is too small", "ackTimeout: -1ns is too small",
			"tokenFile: cannot be used together with credentialsFile", "user: is missing, but passwordFile is given", "tls.keyFile: is missing, but certFile is given",
		},
		"url: nats://t0ken@a": {"url: contains credentials"},
		`embedded: {listen: nowhere, storeDir: ""}`: {
			`embedded.listen: "nowhere" is not`, "embedded.storeDir: is empty", "stream.create: must be true",
		},
	} {
		cfg, at := strictyaml.Decode[nats.Config]("", []byte(text))
		cfg.Validate(at)
		err := at.Err()
		for _, want := range all {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "t0ken") {
				t.Errorf("no mention of %q in: %v", want, err)
			}
		}
	}
}

// A connection that breaks ends the wait for acknowledgements at once, not after AckTimeout.
func TestBrokenConnectionIsNoticed(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) { c.AckTimeout = 10 * time.Minute }
	sink := connect(t, b)
	send(t, sink, sinktest.Message("a", 1, 100))
	b.Freeze()
	cut := time.AfterFunc(100*time.Millisecond, func() { b.Cut(); b.Thaw() })
	defer cut.Stop()
	results := try(t, sink, sinktest.Message("a", 2, 100), sinktest.Message("a", 3, 100), sinktest.Message("b", 1, 100))
	for i, err := range results {
		unclear := sinks.IsMaybeWritten(err) && strings.Contains(err.Error(), "connection lost")
		if unclear != (i != 1) || errors.Is(err, sinks.ErrNotAttempted) != (i == 1) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	send(t, sink, sinktest.Message("a", 2, 100), sinktest.Message("a", 3, 100), sinktest.Message("b", 1, 100))
}

// Connections that break again and again under load: the stream has each event once, in order for each object.
func TestCutsUnderLoad(t *testing.T) {
	inOneRound(t, func() error { // between two messages, a cut hits nothing
		if cutUnderLoad(t) == 0 {
			return errors.New("no cut hit anything")
		}
		return nil
	})
}

// cutUnderLoad returns how many messages were sent again.
func cutUnderLoad(t *testing.T) (retries int) {
	t.Helper()
	b := newBroker(t)
	q := sinktest.Queue(t, 1000)
	sink := b.NewSink(t)
	d := &sinks.Drain{
		Sink: sink, Queue: q, MaxBatch: 300, Parked: sinktest.OpenParked(t, t.TempDir()),
		Hooks:  sinks.Hooks{OnRetry: func(*event.Message) { retries++ }},
		Logger: slog.New(slog.DiscardHandler),
	}
	sent := sinktest.Messages(30, scale.Of(150, 300))
	go func() {
		defer q.Close()
		for i, m := range sent {
			if i%900 == 500 {
				b.Cut()
			}
			if q.Push(t.Context(), m) != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.Run(ctx); err != nil {
		t.Fatalf("Run: %v; %s", err, d.Status())
	}
	closeSink(t, sink.(*nats.Sink))
	got := make(map[string][]string)
	for _, r := range b.Records(t) {
		name := path.Base(r.Attributes["subject"])
		got[name] = append(got[name], r.Attributes["id"])
	}
	want := make(map[string][]string)
	for _, m := range sent {
		want[m.Identity.Name] = append(want[m.Identity.Name], m.ID)
	}
	if diff := cmpDiff(want, got); diff != "" {
		t.Errorf("events of each object (-sent +held):\n%s", diff)
	}
	return retries
}

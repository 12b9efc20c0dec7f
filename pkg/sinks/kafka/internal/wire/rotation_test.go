package wire

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/test/certs"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// rotating is a client that looks at its files before each request, and counts its connections.
type rotating struct {
	*Client
	addr  string
	dials atomic.Int32
	log   bytes.Buffer
}

func newRotating(t *testing.T, cfg Config) *rotating {
	t.Helper()
	r := &rotating{addr: cfg.Brokers[0]}
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		r.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	r.Client = newClient(t, cfg)
	r.CheckFiles = 0
	return r
}

// send sends one request, which has to be answered at once, and returns how many connections were opened for it.
func (r *rotating) send(t *testing.T) int32 {
	t.Helper()
	before := r.dials.Load()
	if _, err := r.Send(t.Context(), r.addr, &metadata.Request{TopicNames: []string{}}); err != nil {
		t.Fatal(err)
	}
	return r.dials.Load() - before
}

func (r *rotating) expect(t *testing.T, when string, got, want int32) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d new connections, want %d; log:\n%s", when, got, want, r.log.String())
	}
}

// TestRotatedPassword: a new password in the file is used at once and without a restart. One that does not do stops
// nothing that works, and the log says so.
func TestRotatedPassword(t *testing.T) {
	broker := testkafka.ForTest(t)
	setPassword(t, broker.Addr(), "rotating", "one")
	file := passwordFile(t, "one")
	r := newRotating(t, Config{
		Brokers: []string{broker.SASLAddr()},
		SASL:    SASL{Mechanism: "SCRAM-SHA-512", Username: "rotating", PasswordFile: file},
	})
	r.send(t)
	r.expect(t, "nothing changed", r.send(t), 0)

	setPassword(t, broker.Addr(), "rotating", "tw0-secret")
	overwrite(t, file, "wr0ng-secret")
	r.expect(t, "a wrong password", r.send(t), 1)
	if log := r.log.String(); !strings.Contains(log, "rotated TLS or SASL files rejected") ||
		strings.Contains(log, "wr0ng") {
		t.Errorf("log:\n%s", log)
	}
	overwrite(t, file, "tw0-secret\n")
	r.expect(t, "the new password", r.send(t), 1)
	r.expect(t, "nothing changed since", r.send(t), 0)

	r.Close() // as if the broker had ended it
	r.expect(t, "a new connection", r.send(t), 1)
}

// TestRotatedCertificate: the same for a client certificate, swapped as the kubelet does it: by a symbolic link.
func TestRotatedCertificate(t *testing.T) {
	broker := testkafka.ForTest(t)
	authority, err := broker.ClientCA()
	if err != nil {
		t.Fatal(err)
	}
	mount := t.TempDir()
	swap := func(version string, o certs.Options) {
		t.Helper()
		dir, data := filepath.Join(mount, version), filepath.Join(mount, "..data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, _, err := authority.IssueFiles(dir, o); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir, data+"_tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(data+"_tmp", data); err != nil {
			t.Fatal(err)
		}
	}
	swap("1", certs.Options{Name: "first"})
	r := newRotating(t, Config{Brokers: []string{broker.MutualTLSAddr()}, TLS: access.TLS{
		CAFile:   broker.CAFile(),
		CertFile: filepath.Join(mount, "..data", "tls.crt"),
		KeyFile:  filepath.Join(mount, "..data", "tls.key"),
	}})
	r.send(t)
	swap("2", certs.Options{Name: "late", Lifetime: -time.Hour})
	r.expect(t, "an expired certificate", r.send(t), 1)
	swap("3", certs.Options{Name: "second"})
	r.expect(t, "a new certificate", r.send(t), 1)
	r.expect(t, "nothing changed since", r.send(t), 0)
	if _, err := os.Stat(filepath.Join(mount, "3", "tls.crt")); err != nil {
		t.Error(err)
	}
}

func overwrite(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func setPassword(t *testing.T, addr, user, password string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	altered, err := kadm.NewClient(client).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password},
	})
	if err != nil || altered.Error() != nil {
		t.Fatal(err, altered.Error())
	}
}

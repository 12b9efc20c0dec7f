package kafkacheck_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/test/certs"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkafka.Main(m)) }

func newSink(t testing.TB, cfg kafka.Config) *kafka.Sink {
	t.Helper()
	if cfg.Topic == "" {
		cfg.Topic = "events"
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clientCertificate makes the files of a certificate that the mutual TLS listener takes.
func clientCertificate(t *testing.T, o certs.Options) access.TLS {
	t.Helper()
	broker := testkafka.ForTest(t)
	authority, err := broker.ClientCA()
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := authority.IssueFiles(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return access.TLS{CAFile: broker.CAFile(), CertFile: certFile, KeyFile: keyFile}
}

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

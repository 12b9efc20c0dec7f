package wire

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkafka.Main(m)) }

// newClient completes the configuration, and closes the client at the end.
func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		cfg.Dial = reach.Dial
	}
	cfg.Prober = &reach.Prober{Dial: cfg.Dial}
	c := New(&cfg)
	t.Cleanup(c.Close)
	return c
}

func passwordFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func waitUntil(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it does not happen")
		}
	}
}

// blamed is sinktest.Blamed, as a type of this package's own.
type blamed struct{ Step, Key, Text string }

func blame(t *testing.T, err error, addr string) blamed {
	t.Helper()
	return blamed(sinktest.Blame(t, err, addr))
}

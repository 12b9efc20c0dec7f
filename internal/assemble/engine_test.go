package assemble

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// embeddedConfig is a configuration that feeds an embedded JetStream server on free ports.
func embeddedConfig(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
http: {listen: "127.0.0.1:0"}
state: {path: %q}
sinks: [{name: js, nats: {embedded: {listen: "127.0.0.1:0", storeDir: %q}, stream: {name: K8S, create: true, subjects: ["k8s.>"]}}}]
`, filepath.Join(dir, "state"), filepath.Join(dir, "nats")))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// newEngine builds the engine of a configuration, whose API server is away.
func newEngine(t *testing.T, cfg *config.Config) (*engine.Engine, error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	options, err := Options(cfg, &rest.Config{Host: "https://127.0.0.1:1"}, "", log)
	if err != nil {
		t.Fatal(err)
	}
	store, err := Checkpoint(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	if options.Store, err = checkpoint.Open(store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { options.Store.Close() })
	options.Metrics = metrics.New("", "")
	return engine.New(options)
}

// The API server is away: the engine runs, reports it, and ends with its context.
func TestWithoutAnAPIServer(t *testing.T) {
	b, err := newEngine(t, embeddedConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	deadline := time.After(2 * time.Minute)
	for {
		code, body := get(t, b, "/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(body, "connection refused") &&
			!strings.Contains(body, "sink js") {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("readyz: %d %s", code, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if code, body := get(t, b, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %s", code, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, e *engine.Engine, path string) (int, string) {
	t.Helper()
	response := httptest.NewRecorder()
	handler := metrics.New("", "").Handler(e.Readiness)
	handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return response.Code, response.Body.String()
}

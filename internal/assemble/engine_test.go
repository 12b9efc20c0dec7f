package assemble

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
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
	options, err := Options(cfg, &rest.Config{Host: "https://127.0.0.1:1"}, engine.Build{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
	deadline := time.After(20 * time.Second)
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
	http.DefaultClient.CloseIdleConnections()
}

func get(t *testing.T, e *engine.Engine, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestATakenPortIsAnErrorAtTheStart(t *testing.T) {
	first := embeddedConfig(t)
	b, err := newEngine(t, first)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() {
		if err := b.Run(ctx); err != nil { // closes it
			t.Error(err)
		}
	}()
	second := embeddedConfig(t)
	second.HTTP.Listen = b.Addr()
	if _, err := newEngine(t, second); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("err = %v", err)
	}
}

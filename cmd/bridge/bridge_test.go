package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

// embedded is a configuration that feeds an embedded JetStream server on free ports.
func embedded(t *testing.T) *config.Config {
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

// The API server is away: the bridge lives, says so, and ends when it is told to.
func TestWithoutAnAPIServer(t *testing.T) {
	b, err := newBridge(embedded(t), &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	deadline := time.After(20 * time.Second)
	for {
		code, body := get(t, b, "/readyz")
		if code == http.StatusServiceUnavailable && strings.Contains(body, "connection refused") && !strings.Contains(body, "sink js") {
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

func get(t *testing.T, b *Bridge, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.http.listener.Addr().String()+path, nil)
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
	first := embedded(t)
	b, err := newBridge(first, &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.http.listener.Close()
	second := embedded(t)
	second.HTTP.Listen = b.http.listener.Addr().String()
	if _, err := newBridge(second, &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("err = %v", err)
	}
}

// docs/metrics.md holds what the code registers.
func TestMetricsPage(t *testing.T) {
	cfg := embedded(t)
	cfg.Sinks[0].DeadLetter = &config.DeadLetter{File: &config.DeadLetterFile{}}
	b, err := newBridge(cfg, &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.http.listener.Close()
	store := b.pipelines[0].drain.Parked
	if err := store.Park([]parked.Parking{{Destination: "k8s.pods", Message: &event.Message{}}}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m := newMetrics()
	m.forSink("js").resource(schema.GroupResource{Resource: "pods"})
	m.forSink("js").suppressed(schema.GroupResource{Resource: "pods"}, "status")
	m.registry.MustRegister(&stateCollector{b.pipelines, func() []informer.Status {
		return []informer.Status{{Resource: schema.GroupVersionResource{Resource: "pods"}, ResourceVersion: "1", LastContact: time.Now()}}
	}, b.engine})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.NewBufferString(metricsIntro)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), namespace+"_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	compareFile(t, "../../docs/metrics.md", page.Bytes())
}

const metricsIntro = `# Metrics

What ` + "`/metrics`" + ` shows, beside the usual metrics of the Go runtime and the process. Labels are sinks, resources and watched
namespaces, never objects. The counters of a sink and a resource are there, at zero, as soon as the resource is watched.

Worth an alert (the Helm chart has these and more as rules, with [what to do](operations.md#alerts)):

- ` + "`deltabridge_sink_connected == 0`" + ` for minutes: a broker is away.
- ` + "`histogram_quantile(0.99, rate(deltabridge_event_lag_seconds_bucket[5m]))`" + ` above what readers bear.
- ` + "`increase(deltabridge_events_dropped_total[10m]) > 0`" + `, and the same for ` + "`deltabridge_events_refused_total`" + `: the stream has gaps.
- ` + "`time() - deltabridge_informer_last_contact_timestamp_seconds > 900`" + `: a watch is silent.

| metric | type | labels | meaning |
|---|---|---|---|
`

func compareFile(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code says; go test ./cmd/bridge -run %s -update writes it anew", path, t.Name())
	}
}

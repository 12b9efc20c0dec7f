package engine

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// docs/metrics.md holds what the code registers.
func TestMetricsPage(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Options{
		Cluster: "c", State: dir, HTTP: "127.0.0.1:0", Kube: &rest.Config{Host: "https://127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler),
		Sinks: []Sink{{
			Name: "js", Encoder: &event.Encoder{}, Destination: stdout.New(io.Discard), Buffer: roomy,
			Rejections: sinks.Rejections{DeadLetters: &deadletter.File{Path: dir + "/letters"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.http.listener.Close()
	defer e.pipelines[0].stop()
	store := e.pipelines[0].drain.Parked
	if err := store.Park([]parked.Parking{{Destination: "k8s.pods", Message: &event.Message{}}}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m := newMetrics(Build{})
	m.forSink("js").resource(schema.GroupResource{Resource: "pods"})
	m.forSink("js").suppressed(schema.GroupResource{Resource: "pods"}, "status")
	m.registry.MustRegister(&stateCollector{e.pipelines, func() []informer.Status {
		return []informer.Status{{Resource: schema.GroupVersionResource{Resource: "pods"}, ResourceVersion: "1", LastContact: time.Now()}}
	}, e.tracker})
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
		t.Errorf("%s is not what the code says; go test ./internal/engine -run %s -update writes it anew", path, t.Name())
	}
}

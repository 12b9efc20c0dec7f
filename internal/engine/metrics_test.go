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

	"github.com/deltabridge/deltabridge/internal/metrics"
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
		Cluster: "c",
		State:   dir,
		HTTP:    "127.0.0.1:0",
		Kube:    &rest.Config{Host: "https://127.0.0.1:1"},
		Logger:  slog.New(slog.DiscardHandler),
		Sinks: []Sink{{
			Name: "js", Encoder: &event.Encoder{}, Destination: stdout.New(io.Discard), Buffer: roomy,
			Rejections: sinks.Rejections{DeadLetters: &deadletter.Store{Dir: dir + "/letters"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.http.Close()
	defer e.pipelines[0].stop()
	store := e.pipelines[0].drain.Parked
	if err := store.Park([]parked.Parking{{Destination: "k8s.pods", Message: &event.Message{}}}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m := metrics.New("", "")
	m.ForSink("js").Resource(schema.GroupResource{Resource: "pods"}).Suppressed.WithLabelValues("status")
	m.Registry.MustRegister(&stateCollector{e.pipelines, func() []informer.Status {
		return []informer.Status{
			{Resource: schema.GroupVersionResource{Resource: "pods"}, ResourceVersion: "1", LastContact: time.Now()},
		}
	}, e.tracker})
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.NewBufferString(metricsIntro)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), metrics.Namespace+"_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(
			page,
			"| `%s` | %s | %s | %s |\n",
			f.GetName(),
			strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "),
			f.GetHelp(),
		)
	}
	compareFile(t, "../../docs/metrics.md", page.Bytes())
}

const metricsIntro = `# Metrics

` + "`/metrics`" + ` has these metrics, in addition to those of the Go runtime and the process. The labels name sinks, resources and
watched namespaces, never objects. The counters for each pair of sink and resource are created, with the value zero, when the resource
is watched.

Use these for alerts. The Helm chart has alert rules for these and other metrics, each with a [runbook](operations.md#alerts):

- ` + "`deltabridge_sink_connected == 0`" + ` for minutes: a broker is unavailable.
- ` + "`histogram_quantile(0.99, rate(deltabridge_event_lag_seconds_bucket[5m]))`" + ` above what your consumers tolerate.
- ` + "`increase(deltabridge_events_dropped_total[10m]) > 0`" + `, and the same for ` + "`deltabridge_events_refused_total`" + `: the stream has
  gaps.
- ` + "`time() - deltabridge_informer_last_contact_timestamp_seconds > 900`" + `: a watch is silent.

The table leaves out four gauges. The first three exist once the bridge watches a resource, and have the labels ` + "`source`" + ` and
` + "`sink`" + `; the last one exists once the checkpoint is written:

- ` + "`deltabridge_unsettled_events`" + `: events of a source that the sink has not settled.
- ` + "`deltabridge_watermark_resource_version`" + `: the resourceVersion up to which the sink has settled everything of the source.
- ` + "`deltabridge_watermark_lag_seconds`" + `: the age of the oldest event that the sink has not settled.
- ` + "`deltabridge_checkpoint_last_commit_timestamp_seconds`" + `: when the checkpoint was last written.

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

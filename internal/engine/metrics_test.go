package engine

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// docs/metrics.md contains the metrics that the code registers.
func TestMetricsPage(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Options{
		Cluster: "c",
		State:   dir,
		Store:   openStore(t, dir),
		Kube:    &rest.Config{Host: "https://127.0.0.1:1"},
		Logger:  slog.New(slog.DiscardHandler),
		Metrics: metrics.New("", ""),
		Sinks: []Sink{{
			Name: "js", Encoder: &event.Encoder{}, Destination: stdout.New(io.Discard), Buffer: roomy,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	journal, err := audit.OpenJournal(audit.JournalOptions{Dir: dir + "/audit", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	if err := journal.Append(
		t.Context(),
		[][]byte{[]byte(`{"auditID":"e1"}`)},
	); err != nil { // so that the sink has a fuse
		t.Fatal(err)
	}
	e.options.Journal = journal
	if e.pipelines[0].audit, err = e.newAuditReader(e.pipelines[0]); err != nil {
		t.Fatal(err)
	}
	store := e.pipelines[0].Drain.Parked
	if err := store.Park([]parked.Parking{{Destination: "k8s.pods", Message: &event.Message{}}}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m := metrics.New("", "")
	s := m.ForSink("js")
	s.Resource(pods.GroupResource()).Suppressed.WithLabelValues("status")
	s.Hooks().OnSettled(&event.Message{Type: event.Gap, Resource: pods, GapInfo: &event.GapInfo{}}, time.Now(), 0)
	e.tracker.Resume(informer.Source{Name: "pods", Resource: pods})
	e.tracker.Ledger("pods").FinishList("js")
	e.tracker.Ledger("pods").Advance("7")
	if err := e.tracker.Commit(); err != nil {
		t.Fatal(err)
	}
	observer := e.newObserver()
	observer.Informers = func() []informer.Status {
		return []informer.Status{{Resource: pods, ResourceVersion: "1", LastContact: time.Now()}}
	}
	m.Registry.MustRegister(observer)
	m.Registry.MustRegister(metrics.NewAuditIntake(func() audit.JournalStatus { return audit.JournalStatus{} }))
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.NewBufferString(metricsIntro)
	missing := metricNames(t)
	for _, f := range families {
		delete(missing, f.GetName())
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
	if len(missing) > 0 {
		t.Errorf("the page would lack these metrics: %v", slices.Sorted(maps.Keys(missing)))
	}
	compareFile(t, "../../docs/metrics.md", page.Bytes())
}

// An engine knows the gaps of the previous process, so they are visible even if that process ended before a scrape.
func TestLastGapOfThePredecessor(t *testing.T) {
	state := t.TempDir()
	for _, want := range []int{0, 1} {
		e := engineWith(t, state, map[string]sinks.Sink{"lines": stdout.New(io.Discard)})
		m := e.pipelines[0].Metrics
		m.Resource(pods.GroupResource())
		const name = "deltabridge_last_gap_timestamp_seconds"
		if n, err := testutil.GatherAndCount(e.metrics.Registry, name); err != nil || n != want {
			t.Errorf("%d series, want %d, %v", n, want, err)
		}
		m.Hooks().
			OnSettled(&event.Message{Type: event.Gap, Resource: pods, GapInfo: &event.GapInfo{Reason: "r"}}, time.Now(), 0)
		endEngine(t, e)
	}
}

// metricNames gives the names of all metrics that the source code mentions.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	call := regexp.MustCompile(`\.(?:gauges?|counters?|histogram)\(\s*"([a-z_]+)"`)
	for _, path := range []string{"../observe/collector.go", "../metrics/metrics.go"} {
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range call.FindAllSubmatch(code, -1) {
			names[metrics.Namespace+"_"+string(match[1])] = true
		}
	}
	if len(names) < 30 {
		t.Fatalf("only %d metrics were found in the code", len(names))
	}
	return names
}

const metricsIntro = `# Metrics

` + "`/metrics`" + ` has these metrics, and those of the Go runtime and the process. Labels never name objects. A source is what one
watch covers: a resource, or a resource in a namespace. All counters start at zero when the process starts.

The Helm chart has alert rules with [runbooks](operations.md#alerts). If you write your own alerts, begin with these:

- ` + "`deltabridge_sink_connected == 0 unless deltabridge_sink_paused == 1`" + ` for minutes: a broker is unavailable.
- ` + "`time() - deltabridge_last_gap_timestamp_seconds < 900`" + `: the stream has a gap. Unlike ` + "`increase()`" + ` of a counter, this also
  fires if the process started or ended between two scrapes.
- ` + "`increase(deltabridge_events_dropped_total[10m]) > 0`" + `: a full queue drops events. The gap event can be delivered much later.
- ` + "`deltabridge_informer_synced == 0`" + ` for minutes: a resource is not listed.
- ` + "`time() - deltabridge_informer_last_contact_timestamp_seconds > 900`" + `: a watch is silent.
- ` + "`deltabridge_config_last_reload_successful == 0`" + ` for minutes: the bridge refuses its [changed
  configuration](operations.md#changing-the-configuration).

With several replicas, each replica also has the [metrics of its role](availability.md#operation) and this one, and only
the leader has the others:

| metric | type | labels | meaning |
|---|---|---|---|
| ` + "`deltabridge_config_last_reload_successful`" + ` | gauge |  | 1 if the configuration file, as it is now, is in use or is about to be; 0 if it was refused |

## Latency

` + "`deltabridge_event_lag_seconds`" + ` measures each event from the moment at which the bridge has read the change from the watch
until its destination has acknowledged the event, with all queues and retries, also over a restart. It does not include:

- the time from the commit in etcd until the bridge reads the change, usually milliseconds, which the API server does not
  report;
- the time that changes wait in the API server because the queue of a sink is full (` + "`deltabridge_queue_blocked_total`" + `);
- events that have not been acknowledged yet (` + "`deltabridge_queue_age_seconds`" + `).

Therefore an objective requires two rules. This one has a result if less than 99% of the events of 30 days arrived within
2.5 seconds:

` + "```promql" + `
sum by (sink) (increase(deltabridge_event_lag_seconds_bucket{le="2.5"}[30d]))
  / sum by (sink) (increase(deltabridge_event_lag_seconds_count[30d])) < 0.99
` + "```" + `

And this one is for events that have not arrived:

` + "```promql" + `
max by (sink) (deltabridge_queue_age_seconds) > 60
` + "```" + `

The time of events of an initial list or a resync begins when they are queued.

## All metrics

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

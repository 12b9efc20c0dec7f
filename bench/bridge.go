package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/deltabridge/deltabridge/test/poll"
)

// bridge is the program under test: the built binary with a checkpoint and default settings.
type bridge struct {
	*program
	dir         string // directory of its configuration and state
	http, pprof string // addresses
}

// bridgeSetup has the settings in which bridges differ.
type bridgeSetup struct {
	kubeconfig string
	watch      string   // entries of `watch`, in YAML; if empty, configmaps
	sinks      []string // destinations; each sink has two filters
	filter     string   // another key of both filters, as in debounce: 1s
	keys       string   // another key of all sinks, as in payload: change
	log        string   // another key of `state`, as in to.log
	more       string   // other keys, as lines of YAML
}

// config returns the bridge's configuration file.
func (s bridgeSetup) config(dir string, to broker) string {
	watch := s.watch
	if watch == "" {
		watch = "{resources: [configmaps]}"
	}
	var b strings.Builder
	// A broker keeps the name of a cluster, so the simulated API server and the real one have different names.
	cluster, _, _ := strings.Cut(filepath.Base(s.kubeconfig), ".")
	fmt.Fprintf(&b, "cluster: bench-%s\nkubeconfig: %q\nhttp: {listen: \"127.0.0.1:0\", ui: true}\nstate: {path: %q%s}\n",
		cluster, s.kubeconfig, filepath.Join(dir, "state"), s.log)
	fmt.Fprintf(&b, "%swatch: [%s]\nsinks:\n", s.more, watch)
	filter := ""
	if s.filter != "" {
		filter = ", " + s.filter
	}
	keys := ""
	if s.keys != "" {
		keys = s.keys + "\n    "
	}
	for _, name := range s.sinks {
		// Nothing passes the first filter, so that both filters are evaluated for each event.
		fmt.Fprintf(&b, "  - name: %s\n    filters:\n      - {resources: [\"*\", \"*.*\"], namespaces: [\"team-*\"]%s}\n"+
			"      - {resources: [\"*\", \"*.*\"], namespaces: [\"bench*\"], operations: [added, updated, deleted]%s}\n    %s%s\n",
			strings.ToLower(name), filter, filter, keys, to.sink(name))
	}
	return b.String()
}

// startBridge starts a bridge with an empty state.
func (b *bench) startBridge(ctx context.Context, setup bridgeSetup, to broker) (*bridge, error) {
	dir, err := os.MkdirTemp(b.dir, "bridge-")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(configFile(dir), []byte(setup.config(dir, to)), 0o600); err != nil {
		return nil, err
	}
	return b.runBridge(ctx, dir)
}

func configFile(dir string) string { return filepath.Join(dir, "bridge.yaml") }

// runBridge starts a bridge with the configuration and the state in a directory.
func (b *bench) runBridge(ctx context.Context, dir string) (*bridge, error) {
	args := []string{"run", "--config", configFile(dir), "--pprof", "127.0.0.1:0"}
	// The chart sets the same value.
	p, err := startWith([]string{"GOMAXPROCS=1"}, b.bridgeBinary, args...)
	if err != nil {
		return nil, err
	}
	r := &bridge{program: p, dir: dir}
	err = p.prints(ctx, func(output string) bool {
		r.http, r.pprof = submatch(`http=(\S+)`, output), submatch(`pprof=(\S+)`, output)
		return r.http != "" && r.pprof != ""
	})
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return r, nil
}

func submatch(pattern, text string) string {
	match := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if match == nil {
		return ""
	}
	return match[1]
}

// end stops the bridge and removes its state.
func (r *bridge) end() error { return errors.Join(r.stop(), os.RemoveAll(r.dir)) }

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// ready waits until the bridge is ready: its sinks are connected, and their queues have got all existing objects.
func (r *bridge) ready(ctx context.Context) error {
	return until(ctx, startTimeout, func() error {
		if r.Ended() {
			return poll.Permanent(r.failed(errors.New("exited unexpectedly")))
		}
		return r.readyz(ctx)
	})
}

// readyz returns an error unless the bridge says that it is ready.
func (r *bridge) readyz(ctx context.Context) error {
	code, body, err := get(ctx, "http://"+r.http+"/readyz")
	if err == nil && code != http.StatusOK {
		err = errors.New(body)
	}
	return err
}

// metrics reads the bridge's metrics.
func (r *bridge) metrics(ctx context.Context) (metrics, error) {
	_, body, err := get(ctx, "http://"+r.http+"/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

// metrics are the samples of one scrape.
type metrics map[string]*dto.MetricFamily

func parseMetrics(text string) (metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}

// sum returns the sum of a metric's samples.
func (m metrics) sum(name string) (sum float64) {
	for _, s := range m[name].GetMetric() {
		sum += s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
	}
	return sum
}

// delivered checks by the bridge's metrics that each sink has acknowledged all events, without retries and losses.
func (r *bridge) delivered(ctx context.Context, events int) error {
	m, err := r.metrics(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"retried", "dropped", "merged", "refused"} {
		if n := m.sum("deltabridge_events_" + name + "_total"); n > 0 {
			return fmt.Errorf("%.0f events were %s", n, name)
		}
	}
	if n := m.sum("deltabridge_events_acknowledged_total"); n < float64(events) {
		return fmt.Errorf("%.0f of %d events are acknowledged", n, events)
	}
	return nil
}

// idle checks that the sinks together have delivered the given number of events and that their queues are empty.
func (r *bridge) idle(ctx context.Context, events int) error {
	m, err := r.metrics(ctx)
	if err != nil {
		return err
	}
	acknowledged := m.sum("deltabridge_events_acknowledged_total")
	waiting := m.sum("deltabridge_queue_events") + m.sum("deltabridge_spill_events")
	if acknowledged < float64(events) || waiting > 0 {
		return fmt.Errorf("%.0f of %d events are acknowledged, %.0f wait", acknowledged, events, waiting)
	}
	return nil
}

// liveHeap returns the size of the bridge's heap after a garbage collection, in bytes.
func (r *bridge) liveHeap(ctx context.Context) (float64, error) {
	if code, _, err := get(ctx, "http://"+r.pprof+"/debug/pprof/heap?gc=1"); err != nil || code != http.StatusOK {
		return 0, fmt.Errorf("heap profile: status %d: %w", code, err)
	}
	m, err := r.metrics(ctx)
	return m.sum("go_memstats_heap_alloc_bytes"), err
}

// profile writes profiles of the bridge if they are enabled. It starts a CPU profile; finish waits for it and writes
// the profiles of allocations and of the heap.
func (b *bench) profile(ctx context.Context, r *bridge, name string, length time.Duration) (finish func() error) {
	if b.profileDir == "" {
		return func() error { return nil }
	}
	save := func(kind, path string) error {
		code, body, err := get(ctx, "http://"+r.pprof+path)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("%s profile: status %d: %w", kind, code, err)
		}
		return os.WriteFile(filepath.Join(b.profileDir, name+"."+kind+".pprof"), []byte(body), 0o644)
	}
	saved := make(chan error, 1)
	go func() { // received by finish
		saved <- save("cpu", fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(length.Seconds())))
	}()
	return func() error {
		return errors.Join(<-saved, save("allocs", "/debug/pprof/allocs"), save("heap", "/debug/pprof/heap?gc=1"))
	}
}

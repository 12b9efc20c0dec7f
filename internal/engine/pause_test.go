package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// openStore opens the checkpoint in a directory.
func openStore(t *testing.T, state string) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.Open(checkpoint.Options{Path: state, ClusterName: "c", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// engineWith builds an engine whose API server does not answer.
func engineWith(t *testing.T, state string, destinations map[string]sinks.Sink) *Engine {
	t.Helper()
	return engineOf(t, openStore(t, state), state, destinations)
}

func engineOf(
	t *testing.T, store *checkpoint.Store, state string, destinations map[string]sinks.Sink, edit ...func(*Options),
) *Engine {
	t.Helper()
	o := Options{
		Cluster: "c", State: state, Store: store,
		Kube: &rest.Config{Host: "https://127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler),
		Metrics: metrics.New("", ""),
	}
	if err := o.Metrics.KeepGaps(filepath.Join(state, "gaps.json")); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(destinations)) {
		o.Sinks = append(o.Sinks, Sink{
			Name: name, Encoder: &event.Encoder{}, Destination: destinations[name], Buffer: roomy,
			Disconnect: func(context.Context) error { return nil },
		})
	}
	for _, change := range edit {
		change(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// endEngine closes what New opened, and the checkpoint.
func endEngine(t *testing.T, e *Engine) {
	t.Helper()
	e.endReading()
	delivery.Close(deliveries(e.pipelines))
	if err := e.options.Store.Close(); err != nil {
		t.Error(err)
	}
}

// Requests to pause and to resume are answered with what has changed, and a sink stays paused in the next process.
func TestPauseOverARestart(t *testing.T) {
	state := t.TempDir()
	destinations := map[string]sinks.Sink{"lines": stdout.New(io.Discard)}
	e := engineWith(t, state, destinations)
	running := serveControl(t, e.resyncs) // in a directory of its own
	request := func(paused bool, want string) {
		t.Helper()
		answer, err := control.RequestPause(t.Context(), control.Bridge{State: running}, "lines", paused)
		if err != nil || !regexp.MustCompile("^"+want+"\n$").MatchString(answer) {
			t.Errorf("%q, %v, want %q", answer, err, want)
		}
	}
	request(false, "lines: is not paused")
	request(true, "lines: paused, 0 events wait")
	request(true, "lines: already paused since 20[-0-9T:]+Z")
	if paused, err := control.RequestPaused(t.Context(), running); err != nil || len(paused) != 1 ||
		time.Since(paused["lines"]).Abs() > time.Minute {
		t.Errorf("paused: %v, %v", paused, err)
	}
	want := `there is no sink "line"; existing sinks: lines`
	if _, err := control.RequestPause(
		t.Context(),
		control.Bridge{State: running},
		"line",
		true,
	); err == nil ||
		err.Error() != want {
		t.Errorf("an unknown sink: %v", err)
	}
	if _, err := control.RequestPause(t.Context(), control.Bridge{State: running}, "", true); err == nil {
		t.Error("a request that names no sink was accepted")
	}
	if _, err := control.RequestPause(t.Context(), control.Bridge{State: t.TempDir()}, "lines", true); err == nil ||
		!strings.HasPrefix(err.Error(), "no bridge is running with this state.path on this machine") {
		t.Errorf("without a bridge: %v", err)
	}
	endEngine(t, e)

	e = engineWith(t, state, destinations)
	defer endEngine(t, e)
	if since := e.pipelines[0].Drain.PausedSince(); time.Since(since).Abs() > time.Minute {
		t.Errorf("after a restart the sink is paused since %s", since)
	}
	running = serveControl(t, e.resyncs)
	request(false, "lines: resumed, 0 events wait")
	if paused, err := control.RequestPaused(t.Context(), running); err != nil || len(paused) != 0 {
		t.Errorf("paused after resume: %v, %v", paused, err)
	}
	if since := e.options.Store.PausedSince("lines"); !since.IsZero() {
		t.Errorf("still stored: %s", since)
	}
	if err := e.options.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := control.RequestPause(t.Context(), control.Bridge{State: running}, "lines", true); err == nil ||
		!strings.HasPrefix(err.Error(), "sink lines: nothing was changed") || !e.pipelines[0].Drain.PausedSince().IsZero() {
		t.Errorf("paused although that cannot be stored: %v", err)
	}
}

// awaySink connects, and then takes nothing.
type awaySink struct{ slowSink }

func (awaySink) Send(_ context.Context, _ []*event.Message, results []error) {
	for n := range results {
		results[n] = errors.New("connection refused")
	}
}

// While a changed configuration is loaded, requests can still reach the engine that has ended. It must not say that a sink
// is paused that the next engine delivers to.
func TestPauseOfAReplacedEngine(t *testing.T) {
	r := startReplacing(t, "sink")
	close(r.sinks["sink"].open)
	replaced := r.e
	r.e.Replace(func(string) bool { return false })
	r.end()
	r.start(r.e.Kept(), "sink")
	w := httptest.NewRecorder()
	replaced.Commands().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/pause?sink=sink", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "try again") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if stored, running := r.o.Store.PausedSince("sink"), r.e.pipelines[0].Drain.PausedSince(); !stored.Equal(running) {
		t.Errorf("paused since %v in the checkpoint, and since %v", stored, running)
	}
	r.stop()
	r.end()
}

// A sink that has never connected makes the bridge unready. A sink whose destination became unavailable later does not,
// and neither does a paused sink, but /readyz and the metrics report both.
func TestReadinessAndSinks(t *testing.T) {
	state := t.TempDir()
	store := openStore(t, state)
	if err := store.SetPaused("paused", time.Now()); err != nil {
		t.Fatal(err)
	}
	e := engineOf(t, store, state, map[string]sinks.Sink{
		"works": stdout.New(io.Discard), "away": &awaySink{}, "paused": stdout.New(io.Discard),
		"never": &slowSink{away: errors.New("no such host")},
	})
	e.options.NotReady = func() error { return errors.New("too early") }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, p := range e.pipelines {
		if err := p.Queue.Push(t.Context(), &event.Message{ID: "a", Time: time.Now()}); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- p.Drain.Run(ctx) }()
	}
	handler := e.metrics.Handler(e.Readiness)
	get := func(path string) (int, string) {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return response.Code, response.Body.String()
	}
	lines := func(text, pattern string) []string { return regexp.MustCompile("(?m)"+pattern).FindAllString(text, -1) }
	wantReady := []string{
		"not ready:",
		"- sink never: connecting since T: no such host", "- too early",
		"without effect on readiness:",
		"- sink away: retrying since T: connection refused",
		"- sink paused: paused since T",
	}
	wantMetrics := []string{
		`sink_connected{sink="away"} 0`, `sink_connected{sink="never"} 0`,
		`sink_connected{sink="paused"} 0`, `sink_connected{sink="works"} 1`,
		`sink_paused{sink="away"} 0`, `sink_paused{sink="never"} 0`,
		`sink_paused{sink="paused"} 1`, `sink_paused{sink="works"} 0`,
	}
	var diff string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		code, body := get("/readyz")
		body = regexp.MustCompile(`20[-0-9T:]+Z`).ReplaceAllString(body, "T")
		_, all := get("/metrics")
		diff = cmp.Diff(wantReady, lines(body, `^.*:$|^- (sink|too) .*$`)) +
			cmp.Diff(wantMetrics, lines(all, `sink_(connected|paused)\{.*$`))
		if diff == "" && code == http.StatusServiceUnavailable {
			break
		}
	}
	if diff != "" {
		t.Error(diff)
	}
	stop()
	for range e.pipelines {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	endEngine(t, e)
}

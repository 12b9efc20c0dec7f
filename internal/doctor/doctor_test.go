package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/console"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/test/laterformat"
)

func findings() *Report {
	var r Report
	r.add("API server", &diagnose.Finding{Step: "connect", Target: "a:1", Detail: "connected"})
	r.add("API server", &diagnose.Finding{
		Step: "watch", Target: "pods", Detail: "get is not allowed: that is noticed late", Warn: true, Remedy: "grant it",
	})
	r.add("sink \u00e4", &diagnose.Finding{
		Step: "TLS", Target: "broker.example.com:9093", Detail: "once", Remedy: "fix",
		Err: &sinks.ConnectError{Step: "TLS", Address: "elsewhere", Remedy: "not here", Err: errors.New("no room for it")},
	})
	r.add("sink \u00e4", &diagnose.Finding{Step: "stream", Err: errors.New("gone"), Remedy: "look"})
	return &r
}

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	if err := findings().WriteTable(&out, console.Style{}); err != nil {
		t.Fatal(err)
	}
	want := `API server
  ok       connect a:1: connected
  warning  watch pods: get is not allowed: that is noticed late
           -> grant it
sink ` + "\u00e4" + `
  FAILED   TLS broker.example.com:9093: once: no room for it
           -> fix
  FAILED   stream: gone
           -> look

1 ok, 1 warnings, 2 failed
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colors where none are wanted")
	}
	var colored strings.Builder
	if err := findings().WriteTable(&colored, console.Style{Color: true}); err != nil {
		t.Fatal(err)
	}
	plainText := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colored.String(), "")
	if plainText != out.String() || !strings.Contains(colored.String(), "\x1b[31mFAILED ") ||
		!strings.Contains(colored.String(), "\x1b[32mok     ") {
		t.Errorf("with colors:\n%s", colored.String())
	}
}

func TestWriteJSON(t *testing.T) {
	var out strings.Builder
	if err := console.WriteJSON(&out, findings()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK, Warnings, Failed int
		Findings             []map[string]string
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.OK != 1 || got.Warnings != 1 || got.Failed != 2 {
		t.Errorf("counts: %+v", got)
	}
	want := map[string]string{
		"area":   "sink \u00e4",
		"step":   "TLS",
		"target": "broker.example.com:9093",
		"result": "failed",
		"detail": "once",
		"error":  "no room for it",
		"remedy": "fix",
	}
	if diff := cmp.Diff(want, got.Findings[2]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// identified is a sink that knows its destination from others.
type identified struct {
	checked
	destination string
}

func (i *identified) Destination() string { return i.destination }

func (*identified) Registered(context.Context, string) (sinks.Registration, error) {
	return sinks.Registration{}, sinks.ErrNoRegister
}

func (*identified) Register(context.Context, sinks.Owner, string) error { return sinks.ErrNoRegister }

// named is a sink whose destination knows the owner of a name, or says why not.
type named struct {
	identified
	owner string
	err   error
}

func (n *named) Registered(context.Context, string) (sinks.Registration, error) {
	return sinks.Registration{UID: n.owner}, n.err
}

// To whom the cluster's name belongs at a destination is said before the start.
func TestTheOwnerOfAName(t *testing.T) {
	for _, c := range []struct {
		uid, owner string
		err        error
		result     string
		text       string
	}{
		{"k1", "k1", nil, "ok", "this cluster"},
		{"k1", "", nil, "ok", "no cluster has registered this name yet"},
		{"k1", "k2", nil, "failed", "\"local\" is registered for the cluster with uid k2"},
		{"", "k2", nil, "warning", "not known whether that is this cluster"},
		{"k1", "", sinks.ErrNoRegister, "warning", "cannot read which cluster has registered this name: the destination cannot register cluster names"},
	} {
		e := &examination{cfg: localConfig(t), cluster: c.uid}
		found := e.checkName(t.Context(), fake("live", &named{owner: c.owner, err: c.err}))
		if len(found) != 1 {
			t.Fatal(found)
		}
		e.add(found...)
		f := e.report.Findings[0]
		if f.Step != sinks.StepName || f.Result != c.result || !strings.Contains(f.Detail+f.Error, c.text) ||
			f.Result != "ok" && f.Remedy == "" {
			t.Errorf("%+v: %+v", c, f)
		}
	}
	broken := &named{identified: identified{checked: checked{found: []diagnose.Finding{{Err: errors.New("away")}}}}}
	if found := (&examination{cfg: localConfig(t)}).checkSink(t.Context(), fake("live", broken)); len(found) != 1 {
		t.Errorf("an unavailable destination was asked for the name: %v", found)
	}
}

// What will be sent again is said before the start.
func TestAnotherDestination(t *testing.T) {
	cfg := localConfig(t)
	store, err := checkpoint.Open(checkpoint.Options{Path: cfg.State.Path})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SetDestination("live", "stream A"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"stream A": false, "stream B": true, "": false} {
		s := fake("live", &identified{checked{found: []diagnose.Finding{{Step: sinks.StepStream}}}, name})
		report := (&examination{cfg: cfg, sinks: []sink{*s}}).run(t.Context())
		found := slices.ContainsFunc(report.Findings, func(f Finding) bool {
			return f.Step == stepDestination && f.Result == "warning" && strings.Contains(f.Detail, "stream A") &&
				strings.Contains(f.Detail, "initial list")
		})
		if found != want {
			t.Errorf("%q: %v", name, report)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1<<20 - 1: "0", 32<<20 + 1: "32Mi", 1<<30 + 1<<29: "1536Mi", 1 << 62: "4Ei"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

// fake is a sink with a destination, and with more destinations that can be checked.
func fake(name string, destination sinks.Sink, more ...diagnose.Checker) *sink {
	s := &sink{Sink: destination, config: &config.Sink{Name: name}, checkers: more}
	if checker, ok := destination.(diagnose.Checker); ok {
		s.checkers = append([]diagnose.Checker{checker}, more...)
	}
	return s
}

// outcome examines without an API server and gives the finding of a step.
func outcome(t *testing.T, cfg *config.Config, area, step string, more ...sink) Finding {
	t.Helper()
	report := (&examination{cfg: cfg, sinks: more}).run(t.Context())
	for _, f := range report.Findings {
		if f.Area == area && f.Step == step {
			return f
		}
	}
	t.Fatalf("no finding for %s, %s in %v", area, step, report)
	return Finding{}
}

func localConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.State.Path, cfg.HTTP.Listen = filepath.Join(t.TempDir(), "a", "b"), "127.0.0.1:0"
	cfg.Kubeconfig = filepath.Join(t.TempDir(), "no-kubeconfig")
	return cfg
}

func TestState(t *testing.T) {
	cfg := localConfig(t)
	if f := outcome(t, cfg, "API server", "kubeconfig"); f.Result != "failed" || f.Remedy == "" {
		t.Errorf("no kubeconfig: %+v", f)
	}
	if f := outcome(
		t,
		cfg,
		"state",
		"directory",
	); f.Result != "ok" ||
		!strings.Contains(f.Detail, "will create it in "+filepath.Dir(filepath.Dir(cfg.State.Path))) {
		t.Errorf("no directory: %+v", f)
	}
	store, err := checkpoint.Open(checkpoint.Options{Path: cfg.State.Path})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.BeginCluster("another"); err != nil {
		t.Fatal(err)
	}
	if f := outcome(
		t,
		cfg,
		"state",
		"checkpoint",
	); f.Result != "warning" ||
		!strings.Contains(f.Detail, "a bridge uses it") {
		t.Errorf("in use: %+v", f)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	e := &examination{cfg: cfg, cluster: "this"}
	e.checkCheckpoint(t.Context(), cfg.State.Path)
	if f := e.report.Findings[0]; f.Result != "warning" || !strings.Contains(f.Detail, "belongs to another cluster") {
		t.Errorf("another cluster: %+v", f)
	}
	newer := filepath.Join(cfg.State.Path, "parked-a.db")
	laterformat.Write(t, newer)
	if f := outcome(t, cfg, "state", "checkpoint"); f.Result != "failed" ||
		f.Error != newer+" has format 2, which a newer version has written; this version knows format 1, and has changed nothing" ||
		!strings.HasPrefix(f.Remedy, "run the newer version again; or") {
		t.Errorf("a newer version: %+v", f)
	}
	if err := os.Remove(newer); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.State.Path, "checkpoint.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := outcome(t, cfg, "state", "checkpoint"); f.Result != "warning" || !strings.Contains(f.Detail, "quarantined") {
		t.Errorf("damaged: %+v", f)
	}
	cfg.State.Path = filepath.Join(cfg.State.Path, "checkpoint.db")
	if f := outcome(t, cfg, "state", "directory"); f.Result != "failed" || f.Remedy == "" {
		t.Errorf("a file: %+v", f)
	}
}

// checked is a sink with findings of its own.
type checked struct {
	sinks.Sink
	found []diagnose.Finding
}

func (c *checked) Check(context.Context) []diagnose.Finding { return c.found }

func (c *checked) Close(context.Context) error { return nil }

func TestSinks(t *testing.T) {
	cfg := localConfig(t)
	bad := fake(
		"bad",
		&checked{
			found: []diagnose.Finding{{Step: "connect", Err: errors.New("taken")}, {Step: "stream", Err: errors.New("gone")}},
		},
		&checked{found: []diagnose.Finding{{Step: "topic", Err: errors.New("of dead letters")}}},
	)
	all := []sink{*fake("plain", nil), *bad}
	if f := outcome(t, cfg, "sink bad", "topic", all...); f.Result != "failed" {
		t.Errorf("%+v", f)
	}
	if f := outcome(t, cfg, "sink bad", "stream", all...); f.Result != "failed" {
		t.Errorf("%+v", f)
	}
	all[1].config = &cfg.Sinks[0] // it has an embedded server
	all[1].config.Name = "bad"
	store, err := checkpoint.Open(checkpoint.Options{Path: cfg.State.Path})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if f := outcome(
		t,
		cfg,
		"sink bad",
		"destination",
		all...); f.Result != "ok" ||
		!strings.Contains(f.Detail, "is running") {
		t.Errorf("the running bridge's own server: %+v", f)
	}
	if f := outcome(t, cfg, "sink plain", "destination", all...); f.Result != "ok" {
		t.Errorf("%+v", f)
	}
}

// A paused sink explains why nothing arrives, whether the bridge runs or not.
func TestPausedSink(t *testing.T) {
	cfg := localConfig(t)
	all := []sink{*fake("plain", nil), *fake("other", nil)}
	store, err := checkpoint.Open(checkpoint.Options{Path: cfg.State.Path})
	if err != nil {
		t.Fatal(err)
	}
	isPaused := func() {
		t.Helper()
		f := outcome(t, cfg, "sink plain", "paused", all...)
		if f.Result != "warning" || !strings.HasPrefix(f.Detail, "paused since 20") ||
			!strings.Contains(f.Remedy, "`bridge resume plain`") {
			t.Errorf("%+v", f)
		}
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"plain": "2026-01-01T00:00:00Z"}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { control.ServeSocket(ctx, cfg.State.Path, handler, slog.New(slog.DiscardHandler)) })
	for _, err := control.RequestPaused(ctx, cfg.State.Path); err != nil; <-time.After(time.Millisecond) {
		_, err = control.RequestPaused(ctx, cfg.State.Path)
	}
	isPaused()
	cancel()
	serving.Wait()
	if err := errors.Join(store.SetPaused("plain", time.Now()), store.Close()); err != nil {
		t.Fatal(err)
	}
	isPaused()
	report := (&examination{cfg: cfg, sinks: all}).run(t.Context())
	for _, f := range report.Findings {
		if f.Area == "sink other" && f.Step == "paused" {
			t.Errorf("another sink: %+v", f)
		}
	}
	t.Chdir(cfg.State.Path)
	cfg.State.Path = "" // the state directory is not checked, and neither is the current one
	for _, f := range (&examination{cfg: cfg, sinks: all}).run(t.Context()).Findings {
		if f.Step == "paused" {
			t.Errorf("without a state directory: %+v", f)
		}
	}
}

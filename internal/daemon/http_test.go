package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/election"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/guard"
	"github.com/deltabridge/deltabridge/internal/page"
	"github.com/deltabridge/deltabridge/internal/reload"
)

// newTestFrontend returns the server of a standby. No API server examines tokens.
func newTestFrontend(t *testing.T) *frontend {
	t.Helper()
	g, err := guard.New(&rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := reload.New(reload.Options{
		Config: config.Default(), Level: new(slog.LevelVar),
		Build: func(*config.Config) (engine.Options, error) { return engine.Options{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := listen("127.0.0.1:0", "bridge-0-abcde", "dev", control.Standby, g, r)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func getPage(t *testing.T, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(page)
}

// While an engine is being built, liveness and readiness are answered. Then its own endpoints are served, until the end.
func TestFrontend(t *testing.T) {
	f := newTestFrontend(t)
	get := func(path string) string {
		t.Helper()
		code, body := getPage(t, "http://"+f.listener.Addr().String()+path)
		return fmt.Sprintf("%d %s", code, body)
	}
	err := f.during(t.Context(), func(context.Context) error {
		for path, want := range map[string]string{
			"/healthz": "200 ok\n", "/readyz": "503 not ready:\n- starting\n", "/metrics": "503 not ready:\n- starting\n",
		} {
			if got := get(path); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
		engine := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "engine "+r.URL.Path) }
		f.serve(task{role: control.Leader, readiness: f.task.Load().readiness, pages: http.HandlerFunc(engine)})
		if got := get("/readyz"); got != "200 engine /readyz" {
			t.Error(got)
		}
		return io.EOF
	})
	if err == nil || err.Error() != "EOF" {
		t.Error(err)
	}
}

// The status of the engine is joined with what only the process knows.
func TestStatus(t *testing.T) {
	f := newTestFrontend(t)
	defer f.listener.Close()
	if s := f.status(); s.Replica.Role != control.Standby || s.Checkpoint != nil ||
		s.Verdict.Text != "This standby cannot take over: starting." || time.Since(s.At) > time.Minute {
		t.Errorf("%+v", s)
	}
	f.serve(task{
		role: control.Leader, readiness: func() (reasons, notes []string) { return nil, nil },
		status: func() control.Status {
			return control.Status{At: time.Now(), Sinks: []control.Sink{{Name: "a", Health: control.Waiting}}}
		},
	})
	s := f.status()
	if c := s.Configuration; c.File != "built-in" || time.Since(c.Loaded) > time.Minute {
		t.Errorf("%+v", c)
	}
	if !s.Replica.Ready || s.Replica.Name != "bridge-0-abcde" || s.Verdict.Text != "Sink a is not connected yet." {
		t.Errorf("%+v", s)
	}
}

// A process has its role since the role has changed, and not since its configuration was changed.
func TestSinceOfARole(t *testing.T) {
	f := newTestFrontend(t)
	defer f.listener.Close()
	lead := *f.task.Load()
	lead.role = control.Leader
	standby := f.status().Replica.Since
	f.serve(lead)
	since := f.status().Replica.Since
	f.serve(lead)
	if again := f.status().Replica.Since; !since.After(standby) || !again.Equal(since) {
		t.Errorf("standby since %v, leader since %v, and then since %v", standby, since, again)
	}
}

// The page shows the status. An open stream ends with the bridge, which does not wait for its viewers.
func TestPage(t *testing.T) {
	f := newTestFrontend(t)
	f.page = newPage(f, slog.New(slog.NewTextHandler(t.Output(), nil)))
	url := "http://" + f.listener.Addr().String()
	ended, client := make(chan error), http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	err := f.during(t.Context(), func(context.Context) error {
		if code, body := getPage(t, url+"/"); code != http.StatusOK || !strings.Contains(body, "bridge-0-abcde") {
			t.Errorf("%d %s", code, body)
		}
		if code, body := getPage(t, url+"/metrics"); code != http.StatusServiceUnavailable {
			t.Errorf("/metrics: %d %s", code, body)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+page.TailPath, http.NoBody)
		if err != nil {
			return err
		}
		opened := make(chan error)
		go func() {
			response, err := client.Do(request)
			opened <- err
			if err != nil {
				return
			}
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body) // until the end
			ended <- err
		}()
		if err := <-opened; err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream: %v", err)
	}
	f = newTestFrontend(t)
	if err := f.during(t.Context(), func(context.Context) error {
		if code, _ := getPage(t, "http://"+f.listener.Addr().String()+"/"); code == http.StatusOK {
			t.Error("without http.ui, there is a page")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// If HTTP can't be served any longer, the bridge ends.
func TestFrontendFails(t *testing.T) {
	f := newTestFrontend(t)
	f.listener.Close()
	err := f.during(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "HTTP server") {
		t.Error(err)
	}
}

func TestATakenPortIsAnErrorAtTheStart(t *testing.T) {
	f := newTestFrontend(t)
	defer f.listener.Close()
	cfg, err := config.Parse(
		"",
		fmt.Appendf(nil, "{http: {listen: %q}, state: {path: %q}, sinks: [{name: lines, stdout: {}}]}",
			f.listener.Addr(), t.TempDir()),
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Kubeconfig = writeFile(
		t,
		t.TempDir()+"/kubeconfig",
		`{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`,
	)
	if err := Run(
		t.Context(),
		Options{Config: cfg, Log: io.Discard},
	); err == nil ||
		!strings.Contains(err.Error(), "http.listen") {
		t.Errorf("err = %v", err)
	}
}

// The status needs no token and has the steps of the last take-over. A standby takes no commands.
func TestStatusEndpoint(t *testing.T) {
	f := newTestFrontend(t)
	taking := control.NewRecorder(time.Now().Add(-time.Minute), string(election.Expired))
	taking.End(control.StepLease)
	f.takeOver.Store(taking)
	err := f.during(t.Context(), func(context.Context) error {
		taking.End(control.StepLog)
		taking.EndFirst()
		taking.EndFirst()
		address := f.listener.Addr().String()
		answers := control.ReadStatus(t.Context(), []string{address})
		if len(answers) != 1 || answers[0].Status == nil {
			t.Fatalf("%+v", answers)
		}
		r := answers[0].Replica
		if r.Name != "bridge-0-abcde" || r.Ready || r.Role != control.Standby ||
			!slices.Equal(r.NotReady, []string{"starting"}) {
			t.Errorf("%+v", r)
		}
		steps := r.TakeOver.Steps
		if len(steps) != 3 || steps[0].Name != control.StepLease || steps[0].Seconds < 60 || steps[1].Seconds > 59 ||
			steps[2].Name != control.StepEvent || r.TakeOver.Reason != "expired" {
			t.Errorf("%+v", r.TakeOver)
		}
		if code, body := getPage(t, "http://"+address+"/api/resync"); code != http.StatusServiceUnavailable ||
			!strings.HasPrefix(body, "this replica is not the leader") {
			t.Errorf("%d %s", code, body)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A single process that is starting has no leader to which a command could be sent.
func TestCommandsAtTheStart(t *testing.T) {
	f := newTestFrontend(t)
	defer f.listener.Close()
	for role, want := range map[control.Role]string{control.Single: "starting", control.Standby: "is not the leader"} {
		starting := *f.task.Load()
		starting.role = role
		f.serve(starting)
		w := httptest.NewRecorder()
		f.commands().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/resync", http.NoBody))
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", role, w.Code, w.Body)
		}
	}
}

// With several replicas, a command about a sink that is sent audit events is refused with the reason, by every replica.
func TestCommandsAboutAuditSinks(t *testing.T) {
	f := newTestFrontend(t)
	defer f.listener.Close()
	f.auditing.Store(&auditing{cfg: &config.Config{Sinks: []config.Sink{{Name: "who", Events: config.EventsAudit}}}})
	for sink, want := range map[string]string{"who": "every replica delivers", "what": "is not the leader"} {
		for _, command := range []string{"pause", "resume", "resync"} {
			w := httptest.NewRecorder()
			f.commands().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/"+command+"?sink="+sink, http.NoBody))
			if w.Code == http.StatusOK || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s of %s: %d %s", command, sink, w.Code, w.Body)
			}
		}
	}
}

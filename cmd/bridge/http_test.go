package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
)

// While an engine is being built, liveness and readiness are answered. Then its own endpoints are served, until the end.
func TestFrontend(t *testing.T) {
	f, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodGet,
			"http://"+f.listener.Addr().String()+path,
			nil,
		)
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
		return fmt.Sprintf("%d %s", response.StatusCode, body)
	}
	err = f.during(t.Context(), func(context.Context) error {
		for path, want := range map[string]string{
			"/healthz": "200 ok\n", "/readyz": "503 not ready:\n- starting\n", "/metrics": "503 not ready:\n- starting\n",
		} {
			if got := get(path); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
		var engine http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "engine "+r.URL.Path)
		})
		f.engine.Store(&engine)
		if got := get("/readyz"); got != "200 engine /readyz" {
			t.Error(got)
		}
		return io.EOF
	})
	http.DefaultClient.CloseIdleConnections()
	if err == nil || err.Error() != "EOF" {
		t.Error(err)
	}
}

// If HTTP can't be served any longer, the bridge ends.
func TestFrontendFails(t *testing.T) {
	f, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.listener.Close()
	err = f.during(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "HTTP server") {
		t.Error(err)
	}
}

func TestATakenPortIsAnErrorAtTheStart(t *testing.T) {
	f, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := run(t.Context(), cfg, "", nil, io.Discard); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("err = %v", err)
	}
}

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/reload"
)

// A process whose configuration is refused is alive and not ready, and says why.
func TestRefused(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "bridge.yaml"), "sinks: []")
	hash, err := reload.HashFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := refusal{Options: Options{File: file}, name: "bridge-0-abcde", problem: control.Problem{Text: "sinks[0]: wrong"}}
	handler := r.handler(config.Default())
	get := func(path string) (code int, body string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w.Code, w.Body.String()
	}
	if code, body := get("/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %s", code, body)
	}
	for _, path := range []string{"/readyz", "/metrics"} {
		code, body := get(path)
		if code != http.StatusServiceUnavailable || body != "not ready:\n- the configuration is refused: sinks[0]: wrong\n" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_, body := get(control.StatusPath)
	var s control.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	if c := s.Configuration; s.Replica.Ready || s.Replica.Name != r.name || s.Replica.Role != control.Single ||
		c.File != r.File || c.Error == nil || c.Refused != hash ||
		s.Verdict.Text != "The configuration is refused, so the bridge has not started: sinks[0]: wrong." {
		t.Error(body)
	}
}

// The next attempt is after five seconds, or after SIGHUP, also if HTTP cannot be served. A reason is logged once.
func TestRefusedWaits(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "bridge.yaml"), `http: {listen: ":99999"}`)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		hangups := make(chan os.Signal, 1)
		r := refusal{Options: Options{File: file, Hangups: hangups, Log: &log}}
		for _, test := range []struct {
			hangup bool
			reason string
			want   time.Duration
			lines  int
		}{
			{false, "a\nb", refusedInterval, 2}, {false, "a\nb", refusedInterval, 2}, {true, "c", 0, 4},
		} {
			if test.hangup {
				hangups <- syscall.SIGHUP
			}
			began := time.Now()
			r.wait(t.Context(), errors.New(test.reason))
			if took := time.Since(began); took != test.want || strings.Count(log.String(), "\n") != test.lines {
				t.Errorf("%+v: waited %s\n%s", test, took, &log)
			}
		}
	})
}

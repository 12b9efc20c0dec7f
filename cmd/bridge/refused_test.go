package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
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
	r := refusal{file: file, name: "bridge-0-abcde", problem: control.Problem{Text: "sinks[0]: wrong"}}
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
		c.File != r.file || c.Error == nil || c.Refused != hash ||
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
		r := refusal{file: file, hangups: hangups, stderr: &log}
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

// With --wait-for-config, the bridge starts when its file is corrected, and reports the reason until then. Without, it
// ends.
func TestWaitForConfig(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	file, text := runFile(t, address)
	writeFile(t, file, text+"shutdownTimeout: 1h1\n")
	if _, err := command(t, "run", "--config", file); exitCode(err) != exitConfig {
		t.Errorf("without the flag: %v", err)
	}
	s := startProcess(t, nil, "run", "--wait-for-config", "--config", file)
	s.expect(t, `level=ERROR msg="configuration refused, waiting for a corrected file" file=`+file)
	if code, body := getPage(t, "http://"+address+"/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "shutdownTimeout") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	writeFile(t, file, text)
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.expect(t, `msg="starting bridge" version=dev config=`+file)
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.end(t)
}

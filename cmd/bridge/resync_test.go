package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/control"
)

// stateConfig writes a configuration whose folder of state is where it is itself.
func stateConfig(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "bridge.yaml")
	if err := os.WriteFile(
		file,
		[]byte("state: {path: "+dir+"}\nsinks: [{name: lines, stdout: {}}]\n"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	return file
}

// answering serves the socket of a bridge that gives always the same answer, and writes its configuration.
func answering(t *testing.T, answer string) (file string) {
	t.Helper()
	file = stateConfig(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", control.Socket(filepath.Dir(file)))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return file
}

// What comes of a resync is printed, and tells by the exit code. That a running bridge gives such answers is tested in
// internal/engine and with the built binary (test/e2e).
func TestResyncCommand(t *testing.T) {
	failed := answering(t, `{"sink":"a","error":"nothing is watched yet"}`)
	want := "a: 0 objects of 0 resources re-sent\n"
	if out, err := command(
		t,
		"resync",
		"--config",
		failed,
	); err == nil || err.Error() != "sink a: nothing is watched yet" ||
		out != want {
		t.Errorf("%q, %v", out, err)
	}
	t.Setenv(configVariable, failed)
	if _, err := command(t, "resync"); err == nil || err.Error() != "sink a: nothing is watched yet" {
		t.Errorf("with a variable: %v", err)
	}
	if _, err := command(
		t,
		"resync",
		"--config",
		stateConfig(t),
	); err == nil ||
		!strings.HasPrefix(err.Error(), "no bridge is running with this state.path on this machine") {
		t.Errorf("without a bridge: %v", err)
	}
	part := answering(t, `{"sink":"a","resources":2,"objects":12345,"skipped":["pods: forbidden"]}`)
	var incomplete *exitError
	want = "a: 12,345 objects of 2 resources re-sent\n  incomplete: pods: forbidden\n"
	if out, err := command(
		t,
		"resync",
		"--config",
		part,
	); !errors.As(err, &incomplete) || incomplete.code != exitPartly ||
		out != want {
		t.Errorf("without a resource: %q, %v", out, err)
	}
	if out, err := command(t, "resync", "--config", answering(t, `{"sink":"a","resources":2,"objects":5}`)); err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

package control

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSocketInTheWay(t *testing.T) {
	dir := t.TempDir()
	path := Socket(dir)
	left, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed process leaves it
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RequestResync(
		t.Context(),
		dir,
		"",
		nil,
	); err == nil ||
		!strings.HasPrefix(err.Error(), "no bridge is running") {
		t.Errorf("nobody listens: %v", err)
	}
	listener, err := listenUnix(path)
	if err != nil {
		t.Fatalf("left behind: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Error("a socket, although a directory is in its way")
	}
	ServeSocket(t.Context(), dir, nil, slog.New(slog.DiscardHandler)) // returns, because it cannot listen
	long := Socket(filepath.Join(dir, strings.Repeat("x", 100)))
	if _, err := listenUnix(long); err == nil || !strings.Contains(err.Error(), "choose a shorter state.path") {
		t.Errorf("a long path: %v", err)
	}
}

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
	if _, err := listenUnix(path); err == nil || err.Error() != "another process listens there" {
		t.Errorf("in use: %v", err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed process leaves it
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RequestResync(t.Context(), dir, "", nil); err == nil || !strings.HasPrefix(err.Error(), "no bridge runs") {
		t.Errorf("nobody listens: %v", err)
	}
	listener, err := listenUnix(path)
	if err != nil {
		t.Fatalf("left behind: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file: %v", err)
	}
	if _, err := listenUnix(
		Socket(filepath.Join(dir, strings.Repeat("x", 100))),
	); err == nil ||
		!strings.Contains(err.Error(), "choose a shorter state.path") {
		t.Errorf("a long path: %v", err)
	}
	if Listen(dir, nil, slog.New(slog.DiscardHandler)) != nil {
		t.Error("a socket, although a file is in its way")
	}
}

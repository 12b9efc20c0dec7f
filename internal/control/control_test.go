package control

import (
	"context"
	"log/slog"
	"net"
	"net/http"
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
		Bridge{State: dir},
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

// A request that is being served when the server stops is served to its end.
func TestServeFinishesRequests(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, code := make(chan error, 1), make(chan int, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		for { // until nobody can connect any more
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				break
			}
			_ = conn.Close()
		}
		w.WriteHeader(http.StatusAccepted)
	})
	go func() { ended <- Serve(ctx, listener, handler) }()
	go func() {
		defer http.DefaultClient.CloseIdleConnections()
		request, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodGet,
			"http://"+listener.Addr().String(),
			http.NoBody,
		)
		if err != nil {
			t.Error(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			code <- 0
			return
		}
		_ = response.Body.Close()
		code <- response.StatusCode
	}()
	if got := <-code; got != http.StatusAccepted {
		t.Errorf("the open request: %d", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), listener, handler); err == nil || !strings.HasPrefix(err.Error(), "HTTP server: ") {
		t.Errorf("on a closed listener: %v", err)
	}
}

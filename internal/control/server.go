package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// longestSocket is the maximum length of a socket path that every supported system accepts, in bytes.
const longestSocket = 103

// Socket returns the socket path of the bridge that uses the given state directory.
func Socket(state string) string { return filepath.Join(state, "bridge.sock") }

// ServeSocket serves commands on the socket until ctx ends; see Serve. If it cannot open the socket, it logs the reason
// and returns, because the bridge can run without the socket. The caller must have locked the state directory for this
// process.
func ServeSocket(ctx context.Context, state string, handler http.Handler, log *slog.Logger) {
	path := Socket(state)
	listener, err := listenUnix(path)
	if err != nil {
		log.Warn("no control socket: `bridge resync`, `pause` and `resume` are unavailable", "path", path, "err", err)
		return
	}
	switch err := Serve(ctx, listener, handler); {
	case ctx.Err() == nil:
		log.Warn("control socket failed: `bridge resync`, `pause` and `resume` are unavailable", "err", err)
	case err != nil:
		log.Warn("control socket closed before a command finished", "err", err)
	}
}

// Serve serves HTTP until ctx ends. It then waits up to two seconds for open requests, and closes the listener. It
// returns an error if it cannot serve any longer, or if requests are still open after that time.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("HTTP server: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err := server.Shutdown(last)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// listenUnix listens on a socket that only the user of this process can open. It replaces a socket that a previous
// process left behind: no other process uses it, because the state directory is locked.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > longestSocket {
		return nil, fmt.Errorf(
			"its path has %d bytes, but the path of a socket can have only %d: choose a shorter state.path",
			len(path), longestSocket)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

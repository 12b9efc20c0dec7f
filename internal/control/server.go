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
	"sync"
	"time"
)

// longestSocket is the maximum length of a socket path that every supported system accepts, in bytes.
const longestSocket = 103

// Socket returns the socket path of the bridge that uses the given state directory.
func Socket(state string) string { return filepath.Join(state, "bridge.sock") }

// Server serves commands on a Unix socket.
type Server struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
}

// Listen opens the socket. If it cannot open the socket, it logs the reason and returns nil, because the bridge can run
// without the socket. The caller must have locked the state directory for this process.
func Listen(state string, handler http.Handler, log *slog.Logger) *Server {
	path := Socket(state)
	listener, err := listenUnix(path)
	if err != nil {
		log.Warn("cannot listen on the control socket, bridge resync is unavailable", "path", path, "err", err)
		return nil
	}
	return &Server{listener, &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, log}
}

// listenUnix listens on a socket that only the user of this process can open. It replaces a socket file that a previous
// process left behind.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > longestSocket {
		return nil, fmt.Errorf(
			"its path has %d bytes, and a socket's can have %d: choose a shorter state.path",
			len(path),
			longestSocket,
		)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, errors.New("a file with that name exists and is not a socket")
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close() // the connection was only a test
			return nil, errors.New("another process listens there")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
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

// Run serves requests until ctx ends. It then waits up to two seconds for open requests.
func (s *Server) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := s.server.Shutdown(ctx); err != nil {
			s.log.Warn("the socket for commands did not close cleanly", "err", err)
		}
	})
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		s.log.Warn("the socket for commands failed", "err", err)
	}
}

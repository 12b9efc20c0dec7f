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

// longestSocket is the longest path of a socket that every system takes, in bytes.
const longestSocket = 103

// Socket returns the path of the socket of a process with this state directory.
func Socket(state string) string { return filepath.Join(state, "bridge.sock") }

// Server serves commands on a Unix socket.
type Server struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
}

// Listen opens the socket. It returns nil, and logs why, if that is not possible: the process can run without it. The
// state directory must belong to this process.
func Listen(state string, handler http.Handler, log *slog.Logger) *Server {
	path := Socket(state)
	listener, err := listenUnix(path)
	if err != nil {
		log.Warn("no socket for commands: bridge resync will not reach this process", "path", path, "err", err)
		return nil
	}
	return &Server{listener, &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, log}
}

// listenUnix listens on a socket that only the user of the process can reach. It replaces a socket that a process left.
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
			return nil, errors.New("there is a file of that name, which is no socket")
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close() // nothing was sent
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

// Run serves until ctx ends. It returns when every request was answered, or two seconds later.
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

package engine

import (
	"context"
	"encoding/json"
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

// Socket is the path of the socket by which commands reach the engine with a folder of state.
func Socket(state string) string { return filepath.Join(state, "bridge.sock") }

// control serves commands on a Unix socket.
type control struct {
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
}

// listenControl takes the socket; nil if that can't be, which is no reason not to run. The folder belongs to this process: the
// checkpoint in it is locked.
func listenControl(state string, r *resyncer, log *slog.Logger) *control {
	path := Socket(state)
	listener, err := listenUnix(path)
	if err != nil {
		log.Warn("no socket for commands: bridge resync will not reach this process", "path", path, "err", err)
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /resync", r.serve)
	return &control{listener, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, log}
}

// listenUnix listens on a socket that only the user of the process can reach. One that a dead process has left is replaced.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > longestSocket {
		return nil, fmt.Errorf("its path has %d bytes, and a socket's can have %d: choose a shorter state.path", len(path), longestSocket)
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

// Run serves until ctx ends, and returns when every request was answered, or two seconds later.
func (c *control) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := c.server.Shutdown(ctx); err != nil {
			c.log.Warn("the socket for commands did not close cleanly", "err", err)
		}
	})
	if err := c.server.Serve(c.listener); !errors.Is(err, http.ErrServerClosed) {
		c.log.Warn("the socket for commands failed", "err", err)
	}
}

// serve answers a request for a resync: with a line of JSON for each sink, when it was told everything. The resync goes on if
// whoever asked has gone.
func (r *resyncer) serve(w http.ResponseWriter, request *http.Request) {
	pipelines, err := r.find(request.URL.Query().Get("sink"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	answer := json.NewEncoder(w)
	r.resync(pipelines, "request", func(report ResyncReport) {
		if answer.Encode(report) == nil { // who asked may be gone
			_ = http.NewResponseController(w).Flush()
		}
	})
}

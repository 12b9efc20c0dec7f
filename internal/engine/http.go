package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpServer serves /metrics, /healthz and /readyz.
type httpServer struct {
	listener net.Listener
	server   *http.Server
}

// listenHTTP listens immediately, so the start fails if the port is in use.
func listenHTTP(addr string, registry *prometheus.Registry, notReady func() []string) (*httpServer, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w (choose another address, or stop the program that uses it)", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := notReady()
		if len(reasons) == 0 {
			answer(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		answer(w, "not ready:\n- "+strings.Join(reasons, "\n- "))
	})
	return &httpServer{listener, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}, nil
}

// answer writes a line. It ignores errors because the client may have disconnected.
func answer(w io.Writer, line string) { _, _ = io.WriteString(w, line+"\n") }

// Run serves requests until Close is called.
func (s *httpServer) Run() error {
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server: %w", err)
	}
	return nil
}

// Close closes the server. It waits at most two seconds for open requests.
func (s *httpServer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return s.server.Shutdown(ctx)
}

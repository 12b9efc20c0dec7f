package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpServer serves /metrics, /healthz and /readyz.
type httpServer struct {
	listener net.Listener
	server   *http.Server
}

// listenHTTP takes the port, so that a taken one is an error at the start.
func listenHTTP(addr string, registry *prometheus.Registry, notReady func() []string) (*httpServer, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("http.listen %s: %w (choose another address, or end the program that has it)", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := notReady()
		if len(reasons) == 0 {
			fmt.Fprintln(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "not ready:")
		for _, reason := range reasons {
			fmt.Fprintln(w, "-", reason)
		}
	})
	return &httpServer{listener, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}, nil
}

// Run serves until Close.
func (s *httpServer) Run() error {
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server: %w", err)
	}
	return nil
}

// Close lets requests that are under way finish, for at most two seconds.
func (s *httpServer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return s.server.Shutdown(ctx)
}

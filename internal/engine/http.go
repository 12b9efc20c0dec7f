package engine

import (
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// endpoints returns the handler for /metrics, /healthz and /readyz.
func (e *Engine) endpoints(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := e.notReady(); len(reasons) > 0 {
			http.Error(w, "not ready:\n- "+strings.Join(reasons, "\n- "), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n") // fails if the client has disconnected
	})
	return mux
}

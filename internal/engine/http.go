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
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons := e.notReady()
		if len(reasons) == 0 {
			answer(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		answer(w, "not ready:\n- "+strings.Join(reasons, "\n- "))
	})
	return mux
}

// answer writes a line. It ignores errors because the client may have disconnected.
func answer(w io.Writer, line string) { _, _ = io.WriteString(w, line+"\n") }

package metrics

import (
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler returns the handler for /metrics, /healthz and /readyz. readiness returns why the process is not ready, if it
// is not, and notes that do not affect this.
func (m *Metrics) Handler(readiness func() (reasons, notes []string)) http.Handler {
	mux := http.NewServeMux()
	all := prometheus.Gatherers{m.Registry}
	if m.Part != nil {
		all = append(all, m.Part.Registry)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reasons, notes := readiness()
		code, body := http.StatusOK, "ready\n"
		if len(reasons) > 0 {
			code, body = http.StatusServiceUnavailable, list("not ready", reasons)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body+list("without effect on readiness", notes)) // fails if the client has disconnected
	})
	return mux
}

// list returns a heading and one line per item, or nothing if there are no items.
func list(heading string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return heading + ":\n- " + strings.Join(items, "\n- ") + "\n"
}

package engine

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/metrics"
)

// A bridge that is shutting down is alive but not ready, and its last counters can still be read.
func TestEndpointsDuringShutdown(t *testing.T) {
	e := &Engine{metrics: metrics.New("1.2", "")}
	e.reading, e.stopReading = context.WithCancel(t.Context())
	e.endReading()
	handler := e.metrics.Handler(e.Readiness)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/healthz": {http.StatusOK, "ok\n"},
		"/readyz":  {http.StatusServiceUnavailable, "not ready:\n- shutting down\n"},
		"/metrics": {http.StatusOK, `deltabridge_build_info{commit="",version="1.2"} 1`},
		"/other":   {http.StatusNotFound, "404"},
	} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if response.Code != want.code || !strings.Contains(response.Body.String(), want.body) {
			t.Errorf("%s: %d %s", path, response.Code, response.Body)
		}
	}
}

package engine

import "net/http"

// Handler returns the handler for /metrics, /healthz and /readyz. It can be used before Run is called and after it has
// returned.
func (e *Engine) Handler() http.Handler { return e.metrics.Handler(e.Readiness) }

// Commands returns the handler for /api/resync, /api/pause and /api/resume. The control socket has the same handler.
// The caller decides which requests it is given.
func (e *Engine) Commands() http.Handler { return e.resyncs.handler() }

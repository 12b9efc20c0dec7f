package engine

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// servePaused responds which sinks are paused, and since when.
func (r *resyncer) servePaused(w http.ResponseWriter, _ *http.Request) {
	paused := map[string]time.Time{}
	for _, p := range r.pipelines {
		if since := p.Drain.PausedSince(); !since.IsZero() {
			paused[p.Name] = since
		}
	}
	_ = json.NewEncoder(w).Encode(paused) // fails if the client has disconnected
}

// servePause returns the handler of requests to pause a sink, or to resume it. The response is one line.
func (r *resyncer) servePause(paused bool) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		p, err := r.find(request.URL.Query().Get("sink"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		if r.ctx.Err() != nil { // another engine may deliver to the sink already
			http.Error(w, ending, http.StatusServiceUnavailable)
			return
		}
		answer, err := p.SetPaused(paused)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, answer+"\n") // fails if the client has disconnected
	}
}

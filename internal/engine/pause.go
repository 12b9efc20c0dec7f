package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// restorePause pauses the drain if the sink was paused when the previous process ended. It is called before the drain
// runs.
func (p *pipeline) restorePause() {
	if since := p.store.PausedSince(p.Name); !since.IsZero() {
		p.drain.Pause(since)
		p.log.Warn("sink is still paused; run bridge resume to continue", "since", since)
	}
}

// setPaused pauses or resumes the sink. It returns a sentence that describes what has changed.
func (p *pipeline) setPaused(paused bool) (answer string, err error) {
	p.pausing.Lock()
	defer p.pausing.Unlock()
	since := p.drain.PausedSince()
	switch {
	case paused && !since.IsZero():
		return fmt.Sprintf("%s: already paused since %s", p.Name, since.UTC().Format(time.RFC3339)), nil
	case !paused && since.IsZero():
		return p.Name + ": is not paused", nil
	}
	now := time.Now()
	if !paused {
		now = time.Time{}
	}
	if err := p.store.SetPaused(p.Name, now); err != nil {
		return "", fmt.Errorf("sink %s: nothing was changed, because the change cannot be stored: %w", p.Name, err)
	}
	waiting := p.queue.Stats().Items
	if !paused {
		p.drain.Resume()
		p.log.Info("sink resumed", "waiting", waiting)
		return fmt.Sprintf("%s: resumed, %d events wait", p.Name, waiting), nil
	}
	p.log.Info("sink paused", "waiting", waiting)
	p.drain.Pause(now)
	return fmt.Sprintf("%s: paused, %d events wait", p.Name, waiting), nil
}

// servePaused responds which sinks are paused, and since when.
func (r *resyncer) servePaused(w http.ResponseWriter, _ *http.Request) {
	paused := map[string]time.Time{}
	for _, p := range r.pipelines {
		if since := p.drain.PausedSince(); !since.IsZero() {
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
		answer, err := p.setPaused(paused)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, answer+"\n") // fails if the client has disconnected
	}
}

package page

import (
	"net/http"
	"time"
)

const (
	writeTimeout = 10 * time.Second
	// streamLife is how long a stream may last. The page then opens a new one, so that a right that was withdrawn ends.
	streamLife = 10 * time.Minute
)

// stream returns the handler of a stream, with or without a tail.
func (p *Page) stream(tail bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := audience{tail: tail}
		if tail {
			a.selection = newSelection(r)
		}
		v := p.hub.join(a)
		if v == nil {
			w.Header().Set("Retry-After", "10")
			http.Error(w, "too many viewers, or the bridge is stopping; try again later", http.StatusServiceUnavailable)
			return
		}
		defer p.hub.leave(v)
		w.Header().Set("Content-Type", "text/event-stream")
		connection := http.NewResponseController(w)
		defer func() { _ = connection.SetWriteDeadline(time.Time{}) }() // fails if the connection is closed
		life := time.NewTimer(streamLife)
		defer life.Stop()
		for {
			select {
			case data, ok := <-v.frames:
				if !ok || connection.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
					return
				}
				if _, err := w.Write(data); err != nil || connection.Flush() != nil {
					return
				}
			case <-life.C:
				return
			case <-r.Context().Done():
				return
			}
		}
	})
}

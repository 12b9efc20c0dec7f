package listwatch

import (
	"io"
	"net/http"
	"sync"
)

// leases has the Lease of a bridge with a state log, as the bridge has written it. Nothing else competes for it.
type leases struct {
	mu   sync.Mutex
	kind string // its Content-Type; empty if it does not exist
	text []byte
}

func (l *leases) write(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	l.mu.Lock()
	l.kind, l.text = r.Header.Get("Content-Type"), text
	l.mu.Unlock()
	l.read(w, r)
}

func (l *leases) read(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kind == "" {
		notFound(w, r)
		return
	}
	w.Header().Set("Content-Type", l.kind)
	_, _ = w.Write(l.text) // ignore clients that have disconnected
}

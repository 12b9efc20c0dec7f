package audit

import "time"

// reconnect is how long after a start the requests of API servers may still be on connections to a previous process
// that nobody has closed, such as one on a node that has failed. API servers notice this within 45 s.
const reconnect = time.Minute

// Missing returns a time: events of requests that completed before it may be missing in the journal, or arrive late. It
// is about when the journal was opened, and when Miss was called last. An event of a
// request that completed later is in another request of the API server.
func (j *Journal) Missing() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.before
}

// Miss notes that a request, or the TLS handshake before it, was refused or failed.
func (j *Journal) Miss() {
	at := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if at.After(j.before) {
		j.before = at
	}
}

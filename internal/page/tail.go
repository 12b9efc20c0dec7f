package page

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

const (
	tailRows  = 20      // per viewer and interval; more are counted
	tailBytes = 4 << 10 // of the body of an event that are shown
)

// tails are the tails of all viewers. Their mutex is never held for long, because sinks wait for it.
type tails struct {
	count atomic.Int32
	mu    sync.Mutex
	all   map[*tail]struct{}
}

// tail collects the events that one viewer has selected.
type tail struct {
	sink, resource, namespace, name string // substrings
	collected                       tailView
}

// tailView contains the events that were delivered in one interval.
type tailView struct {
	Rows   []row // the newest last
	Missed int   // events that are not shown
}

// row is a delivered event.
type row struct {
	Time           time.Time
	Operation      string
	Resource, Name string // Name is empty for control events
	Sink, ID       string
	Bytes          int64
	Body           []byte // at most tailBytes of it
	Complete       bool
}

// newTail returns the tail that a request asks for, or nil.
func newTail(r *http.Request) *tail {
	if r.FormValue("tail") == "" {
		return nil
	}
	get := func(key string) string { return strings.TrimSpace(r.FormValue(key)) }
	return &tail{sink: get("sink"), resource: get("resource"), namespace: get("namespace"), name: get("name")}
}

// add begins to collect events for a tail, unless it is nil.
func (s *tails) add(t *tail) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*tail]struct{}{}
	}
	s.all[t] = struct{}{}
	s.count.Store(int32(len(s.all)))
}

// remove ends add.
func (s *tails) remove(t *tail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, t)
	s.count.Store(int32(len(s.all)))
}

// observe adds an event to the tails that select it.
func (s *tails) observe(sink string, m *event.Message) {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.all {
		t.collect(sink, m)
	}
}

// take returns what a tail has collected since the last call, or nil if that is nothing.
func (s *tails) take(t *tail) *tailView {
	if t == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(t.collected.Rows) == 0 {
		return nil
	}
	taken := t.collected
	t.collected = tailView{}
	return &taken
}

// collect adds an event to the tail if the viewer has selected it.
func (t *tail) collect(sink string, m *event.Message) {
	if !strings.Contains(sink, t.sink) || !strings.Contains(m.Identity.Namespace, t.namespace) ||
		!strings.Contains(m.Identity.Name, t.name) || !strings.Contains(event.GroupResource(m.Resource), t.resource) {
		return
	}
	if len(t.collected.Rows) >= tailRows {
		t.collected.Missed++
		return
	}
	body := m.Body()
	shown := min(len(body), tailBytes)
	r := row{
		Time: m.Time, Operation: m.Type.String(), Resource: event.GroupResource(m.Resource), Sink: sink, ID: m.ID,
		Bytes: int64(len(body)), Body: bytes.Clone(body[:shown]), Complete: shown == len(body),
	}
	if m.LeftFilter {
		r.Operation = "left"
	}
	if !m.Type.IsControl() {
		r.Name = strings.Clone(m.Identity.Key())
	}
	t.collected.Rows = append(t.collected.Rows, r)
}

// Text returns the body for people.
func (r row) Text() string {
	if !r.Complete {
		return string(bytes.ToValidUTF8(r.Body, nil)) + " …"
	}
	var out bytes.Buffer
	if json.Indent(&out, r.Body, "", "  ") != nil {
		return string(bytes.ToValidUTF8(r.Body, []byte("\uFFFD")))
	}
	return out.String()
}

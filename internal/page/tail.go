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

// tails collects events for the viewers that have a tail. Its mutex is never held for long, because sinks wait for it.
type tails struct {
	count atomic.Int32 // of selections
	mu    sync.Mutex
	all   map[selection]*tail
}

// selection is what a viewer has selected: events whose attributes contain these strings.
type selection struct{ sink, resource, namespace, name string }

// tail contains the events of one selection that were delivered since the last call of take. All viewers with the same
// selection share it.
type tail struct {
	viewers int
	rows    []*row // the newest last
	missed  int    // events that are not shown
}

// row is a delivered event. The tails that contain it share it, so that it is rendered once.
type row struct {
	Time           time.Time
	Operation      string
	Resource, Name string // Name is empty for control events
	Sink, ID       string
	Bytes          int64
	Body           []byte // at most tailBytes of it
	Complete       bool
	lines          []byte // the row as lines of a server-sent event; nil until it is rendered
}

// newSelection returns the selection that a request asks for.
func newSelection(r *http.Request) selection {
	get := func(key string) string { return strings.TrimSpace(r.FormValue(key)) }
	return selection{sink: get("sink"), resource: get("resource"), namespace: get("namespace"), name: get("name")}
}

// add begins to collect the events of a selection for one more viewer.
func (s *tails) add(selected selection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[selection]*tail{}
	}
	if s.all[selected] == nil {
		s.all[selected] = &tail{}
	}
	s.all[selected].viewers++
	s.count.Store(int32(len(s.all)))
}

// remove ends add.
func (s *tails) remove(selected selection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[selected].viewers--; s.all[selected].viewers == 0 {
		delete(s.all, selected)
	}
	s.count.Store(int32(len(s.all)))
}

// observe adds an event to the tails that select it.
func (s *tails) observe(sink string, m *event.Message) {
	if s.count.Load() == 0 {
		return
	}
	resource := event.GroupResource(m.Resource)
	s.mu.Lock()
	defer s.mu.Unlock()
	var shared *row
	for selected, t := range s.all {
		switch {
		case !strings.Contains(sink, selected.sink) || !strings.Contains(resource, selected.resource) ||
			!strings.Contains(m.Identity.Namespace, selected.namespace) ||
			!strings.Contains(m.Identity.Name, selected.name):
		case len(t.rows) >= tailRows:
			t.missed++
		default:
			if shared == nil {
				shared = newRow(sink, resource, m)
			}
			t.rows = append(t.rows, shared)
		}
	}
}

// take returns what was collected since the last call. Selections without events are absent.
func (s *tails) take() map[selection]tail {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[selection]tail{}
	for selected, t := range s.all {
		if len(t.rows) > 0 {
			taken[selected] = *t
			t.rows, t.missed = nil, 0
		}
	}
	return taken
}

func newRow(sink, resource string, m *event.Message) *row {
	body := m.Body()
	shown := min(len(body), tailBytes)
	r := &row{
		Time: m.Time, Operation: m.Operation(), Resource: resource, Sink: sink, ID: m.ID,
		Bytes: int64(len(body)), Body: bytes.Clone(body[:shown]), Complete: shown == len(body),
	}
	if !m.Type.IsControl() {
		r.Name = strings.Clone(m.Identity.Key())
	}
	return r
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

package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// printer prints a line for each acknowledged event, but only one line for an initial list: the number of its objects.
// This line is printed with the next event of the resource, which is usually the synced event. A printer is safe for
// concurrent use.
type printer struct {
	places map[string]*event.Template // templates of the subject or topic, by sink

	mu     sync.Mutex
	out    io.Writer
	listed map[list]int // acknowledged objects of initial lists that were not printed yet
}

// list names the initial list of a resource.
type list struct{ sink, resource string }

func newPrinter(out io.Writer, places map[string]*event.Template) *printer {
	return &printer{out: out, places: places, listed: map[list]int{}}
}

func (p *printer) print(sink string, m *event.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what, where := event.GroupResource(m.Resource), sink
	l := list{sink, what}
	if m.InitialList {
		p.listed[l]++
		return
	}
	if objects := p.listed[l]; objects > 0 {
		delete(p.listed, l)
		p.line(m, "listed", fmt.Sprintf("%s (%d)", what, objects), sink)
	}
	if m.Type == event.Synced && !isResync(m) {
		return
	}
	if !m.Type.IsControl() {
		what += " " + m.Identity.Key()
	}
	if place := p.places[sink]; place != nil {
		where += ": " + place.Expand(m)
	}
	p.line(m, m.Operation(), what, where)
}

// line must be called with mu held.
func (p *printer) line(m *event.Message, operation, what, where string) {
	// Ignore the error, because delivery must continue even if the line cannot be written.
	_, _ = fmt.Fprintf(p.out, "%s  %-7s  %s  -> %s\n", m.Time.Local().Format("15:04:05.000"), operation, what, where)
}

// isResync reports whether a synced event ends a resync.
func isResync(m *event.Message) bool {
	var info event.SyncedInfo
	return json.Unmarshal(m.Data, &info) == nil && info.Resync
}

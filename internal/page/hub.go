package page

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxViewers = 32
	interval   = time.Second
	keepAlive  = 10 * time.Second // after which a viewer is sent a comment if nothing has changed
)

// section is a part of the page.
type section struct {
	id      string
	html    []byte
	objects bool // contains data of objects
	// of and at describe the content of a section that is not rendered each time: what it is about, and its time.
	of string
	at time.Time
}

// frame contains all sections of the page.
type frame []section

// hub renders the page for all viewers. It runs a goroutine while there are any.
type hub struct {
	render func(last frame) (frame, error)
	rows   func(*bytes.Buffer, tailView) error // renders a part of a tail
	log    *slog.Logger
	noise  noise

	running       sync.WaitGroup
	objectViewers atomic.Int32 // the number of viewers that may see data of objects
	tails         tails

	mu      sync.Mutex
	closed  bool
	viewers map[*viewer]struct{}
	stop    chan struct{} // closed when the goroutine is to end
}

// viewer is an open stream.
type viewer struct {
	objects bool  // may see data of objects
	tail    *tail // nil if it has none
	// frames is closed if the viewer reads too slowly, or the page is closed.
	frames  chan []byte
	started bool // was sent the whole page
	quiet   int  // in how many intervals nothing was sent
}

func newHub(render func(frame) (frame, error), rows func(*bytes.Buffer, tailView) error, log *slog.Logger) *hub {
	return &hub{render: render, rows: rows, log: log, viewers: map[*viewer]struct{}{}}
}

// join adds a viewer, and returns nil if there are too many. The caller must call leave at the end.
func (h *hub) join(objects bool, t *tail) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.viewers) >= maxViewers {
		return nil
	}
	v := &viewer{objects: objects, tail: t, frames: make(chan []byte, 2)}
	h.viewers[v] = struct{}{}
	if objects {
		h.objectViewers.Add(1)
	}
	h.tails.add(t)
	if len(h.viewers) == 1 {
		stop := make(chan struct{})
		h.stop = stop
		h.running.Go(func() { h.run(stop) })
	}
	return v
}

// leave removes a viewer, if it was not disconnected.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(v)
}

// close disconnects all viewers, and returns when the goroutine has ended.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for v := range h.viewers {
		h.disconnect(v)
	}
	h.mu.Unlock()
	h.running.Wait()
}

// disconnect ends the stream of a viewer. It must be called with mu held.
func (h *hub) disconnect(v *viewer) {
	close(v.frames)
	h.remove(v)
}

// remove removes a viewer. It must be called with mu held.
func (h *hub) remove(v *viewer) {
	if _, known := h.viewers[v]; !known {
		return
	}
	delete(h.viewers, v)
	h.tails.remove(v.tail)
	if v.objects && h.objectViewers.Add(-1) == 0 {
		h.noise.reset()
	}
	if len(h.viewers) == 0 {
		close(h.stop)
	}
}

// run sends the page to all viewers once per interval, until stop is closed.
func (h *hub) run(stop <-chan struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last frame
	for !isClosed(stop) {
		next, err := h.safely(last)
		if err != nil {
			h.log.Error("cannot render the page", "err", err)
			next = last
		}
		h.send(stop, last, next)
		last = next
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// safely calls render, and returns an error if it panics: a mistake in the page must not end the bridge.
func (h *hub) safely(last frame) (f frame, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v\n%s", problem, debug.Stack())
		}
	}()
	return h.render(last)
}

// send sends the sections that have changed to each viewer, and all sections to new viewers. A viewer that has not
// received the previous ones yet is disconnected: it connects again by itself.
func (h *hub) send(stop <-chan struct{}, last, next frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isClosed(stop) {
		return // the viewers belong to another goroutine, if there are any
	}
	var parts [2][2][]byte // [objects][all]; rendered when required, and shared by the viewers
	for v := range h.viewers {
		part := &parts[number(v.objects)][number(!v.started)]
		if *part == nil {
			*part = encode(last, next, v.objects, !v.started)
		}
		data := *part
		if rows := h.tails.take(v.tail); rows != nil {
			data = append(slices.Clip(data), h.renderTail(rows)...)
		}
		if v.quiet++; len(data) == 0 && v.quiet < int(keepAlive/interval) {
			continue
		}
		if len(data) == 0 {
			data = []byte(":\n\n")
		}
		select {
		case v.frames <- data:
			v.started, v.quiet = true, 0
		default:
			h.disconnect(v)
		}
	}
}

func (h *hub) renderTail(rows *tailView) []byte {
	var out bytes.Buffer
	if err := h.rows(&out, *rows); err != nil {
		h.log.Error("cannot render the page", "err", err)
		return nil
	}
	return appendEvent(nil, "tail", out.Bytes())
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// encode returns the sections of next that differ from last, or all, as server-sent events. The result is not nil.
func encode(last, next frame, objects, all bool) []byte {
	out := []byte{}
	for i, s := range next {
		if s.objects && !objects || !all && i < len(last) && bytes.Equal(last[i].html, s.html) {
			continue
		}
		out = appendEvent(out, s.id, s.html)
	}
	return out
}

// appendEvent appends a server-sent event.
func appendEvent(out []byte, name string, data []byte) []byte {
	out = append(append(out, "event: "...), name...)
	for line := range bytes.Lines(data) {
		out = append(append(out, "\ndata: "...), bytes.TrimRight(line, "\r\n")...)
	}
	return append(out, "\n\n"...)
}

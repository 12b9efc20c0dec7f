package page

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	maxViewers = 32
	interval   = time.Second
	keepAlive  = 10 * time.Second // after which a viewer is sent a comment if nothing has changed
)

// section is a part of the page.
type section struct {
	id    string
	event []byte // its HTML as a server-sent event
	// of and at describe the content of a section that is not rendered each time: what it is about, and its time.
	of string
	at time.Time
}

// frame contains all sections of the page.
type frame []section

// hub renders the page for all viewers. It runs a goroutine while there are any.
type hub struct {
	render func(last frame) (frame, error)
	rows   func(tail) ([][]byte, error) // renders a part of a tail as the parts of a server-sent event
	log    *slog.Logger

	running sync.WaitGroup
	tails   tails

	mu      sync.Mutex
	closed  bool
	viewers map[*viewer]struct{}
	stop    chan struct{} // closed when the goroutine is to end
}

// audience is what viewers have in common that are sent the same.
type audience struct {
	tail bool // has a tail
	selection
}

// viewer is an open stream.
type viewer struct {
	audience
	// frames is closed if the viewer reads too slowly, or the page is closed. Viewers share what is in it.
	frames  chan []byte
	started bool // was sent the whole page
	quiet   int  // in how many intervals nothing was sent
}

func newHub(render func(frame) (frame, error), rows func(tail) ([][]byte, error), log *slog.Logger) *hub {
	return &hub{render: render, rows: rows, log: log, viewers: map[*viewer]struct{}{}}
}

// join adds a viewer, and returns nil if there are too many. The caller must call leave at the end.
func (h *hub) join(a audience) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.viewers) >= maxViewers {
		return nil
	}
	v := &viewer{audience: a, frames: make(chan []byte, 2)}
	h.viewers[v] = struct{}{}
	if v.tail {
		h.tails.add(v.selection)
	}
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
	if v.tail {
		h.tails.remove(v.selection)
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
	type kind struct {
		audience
		all bool
	}
	shared, rows := map[kind][]byte{}, h.renderTails()
	for v := range h.viewers {
		k := kind{v.audience, !v.started}
		data, known := shared[k]
		if !known {
			parts := changed(last, next, k.all)
			if k.tail {
				parts = append(parts, rows[k.selection]...)
			}
			data = slices.Concat(parts...)
			shared[k] = data
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

// renderTails returns the new events of each selection that has some.
func (h *hub) renderTails() map[selection][][]byte {
	all := map[selection][][]byte{}
	for selected, t := range h.tails.take() {
		rows, err := h.rows(t)
		if err != nil {
			h.log.Error("cannot render the page", "err", err)
		}
		all[selected] = rows
	}
	return all
}

// changed returns the sections of next that differ from last, or all.
func changed(last, next frame, all bool) (events [][]byte) {
	for i, s := range next {
		if !all && i < len(last) && bytes.Equal(last[i].event, s.event) {
			continue
		}
		events = append(events, s.event)
	}
	return events
}

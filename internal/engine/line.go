package engine

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// lineShare is the share of a buffer that events may use in addition while they wait for their actors.
const lineShare = 2

// line contains the events of a listener that wait until it is known who made the changes, and everything behind them:
// a listener's events keep their order. The ledger has open events for them, so a restart brings their changes again.
// The zero value is empty. The listener's mu guards it.
type line []*waiter

// waiter is an event in a line, or a position that the listener has reached.
type waiter struct {
	message  *event.Message // nil for a position
	asked    *question      // nil if the event does not wait itself
	size     int64
	entered  time.Time
	position string
}

func (w *waiter) isReady() bool { return w.message == nil || w.asked.isAnswered() }

// lines is what a pipeline knows about the lines of its listeners.
type lines struct {
	answered chan struct{} // contains an element after changes were answered

	mu      sync.Mutex
	waiting map[*listener]time.Time // listeners whose lines are not empty: when their oldest events entered
	events  int
	bytes   int64
}

func newLines() lines {
	return lines{answered: make(chan struct{}, 1), waiting: map[*listener]time.Time{}}
}

// note says that the line of a listener was changed.
func (n *lines) note(l *listener, events int, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events += events
	n.bytes += bytes
	if len(l.line) == 0 {
		delete(n.waiting, l)
	} else {
		n.waiting[l] = l.line[0].entered
	}
}

func (n *lines) size() (events int, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events, n.bytes
}

// listeners returns the listeners whose lines are not empty.
func (n *lines) listeners() (all []*listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.waiting {
		all = append(all, l)
	}
	return all
}

// hasPassed reports whether everything that had entered a line before a time has left it.
func (n *lines) hasPassed(at time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, entered := range n.waiting {
		if !entered.After(at) {
			return false
		}
	}
	return true
}

// isLineFull reports whether 1/part of the room for waiting events is in use.
func (p *pipeline) isLineFull(part int) bool {
	events, bytes := p.lines.size()
	return part*events >= max(1, p.Buffer.Events/lineShare) || int64(part)*bytes >= p.Buffer.Bytes/lineShare
}

// enterLine puts an event into the line of the listener. If there is no room for it, the oldest ones leave the line
// with what is known about them.
func (l *listener) enterLine(w *waiter) {
	w.entered = time.Now()
	l.line = append(l.line, w)
	if w.message == nil {
		l.pipeline.lines.note(l, 0, 0)
		return
	}
	w.size = w.message.Size()
	l.pipeline.lines.note(l, 1, w.size)
	for len(l.line) > 0 && (l.line[0].isReady() || l.pipeline.isLineFull(1)) {
		l.leaveLine()
	}
}

// leaveLine pushes the oldest event in the line.
func (l *listener) leaveLine() {
	w := l.line[0]
	l.line[0] = nil
	if l.line = l.line[1:]; len(l.line) == 0 {
		l.line = nil
	}
	if w.message == nil {
		l.pipeline.lines.note(l, 0, 0)
		l.pipeline.progress.reached(&l.source, w.position, w.entered)
		return
	}
	l.pipeline.lines.note(l, -1, -w.size)
	w.message.Read = time.Now()
	l.ledger.Sent(l.pipeline.Name, w.message.Origin.Seq, w.message.Read)
	l.deliver(w.message, w.asked)
}

// deliver puts a message into the queue. It returns false if the queue is closed.
func (l *listener) deliver(m *event.Message, asked *question) bool {
	if m.Actors != nil {
		if known := asked.known(); known != nil {
			m.Actors = known
		}
		l.pipeline.metrics.Actors[m.Actors.GradeOf()].Inc()
	}
	l.counters.Queue(m)
	if err := l.pipeline.push(l.ctx, m); err != nil { // only during shutdown, when the queue is closed
		l.counters.Unqueue(m)
		l.pipeline.abandoned.Add(1)
		return false
	}
	return true
}

// advance pushes the events at the front of the line that do not wait any longer, or all.
func (l *listener) advance(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.line) > 0 && (all || l.line[0].isReady()) {
		l.leaveLine()
	}
}

// reach notes that the listener has reached a position, with everything that is in its line.
func (l *listener) reach(position string) {
	p := &l.pipeline.progress
	switch n := len(l.line); {
	case n == 0:
		p.reached(&l.source, position, time.Now())
	case p.every == 0:
	case l.line[n-1].message == nil:
		l.line[n-1].position, l.line[n-1].entered = position, time.Now()
	default:
		l.enterLine(&waiter{position: position})
	}
}

// forgetReached is called when resourceVersions have gone back, so that earlier positions mean nothing.
func (l *listener) forgetReached() {
	kept := l.line[:0]
	for _, w := range l.line {
		if w.message != nil {
			kept = append(kept, w)
		}
	}
	clear(l.line[len(kept):])
	l.line = kept
	l.pipeline.lines.note(l, 0, 0)
}

// followLines pushes the events that wait for their actors when these are known, until ctx ends.
func (p *pipeline) followLines(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.lines.answered:
			p.advanceLines(false)
		}
	}
}

// advanceLines pushes the events that do not wait any longer, or all.
func (p *pipeline) advanceLines(all bool) {
	for _, l := range p.lines.listeners() {
		l.advance(all)
	}
}

// answered makes the pipelines push the events whose actors are known now.
func (e *Engine) answered() {
	for _, p := range e.pipelines {
		select {
		case p.lines.answered <- struct{}{}:
		default:
		}
	}
}

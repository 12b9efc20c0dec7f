package engine

import (
	"context"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/actors"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// LineShare is the part of a buffer that events may use in addition while they wait for their actors: 2 is a half.
const LineShare = 2

// line contains the events of a listener that wait until it is known who made the changes, and everything behind them:
// a listener's events keep their order. The ledger has open events for them, so a restart brings their changes again.
// The zero value is empty. The listener's mu guards it.
type line []*waiter

// waiter is an event in a line, or a position that the listener has reached.
type waiter struct {
	message  *event.Message   // nil for a position
	asked    *actors.Question // nil if the event does not wait itself
	size     int64
	entered  time.Time
	position string
}

func (w *waiter) isReady() bool { return w.message == nil || w.asked.IsAnswered() }

// lines is what a pipeline knows about the lines of its listeners.
type lines struct {
	answered chan struct{} // contains an element after changes were answered

	mu      sync.Mutex
	waiting map[*listener]time.Time // listeners whose lines are not empty: when their oldest events entered
	all     amount
	resent  amount // the part of all that is re-sent objects
}

// amount is how much waits.
type amount struct {
	events int
	bytes  int64
}

func (a *amount) add(events int, bytes int64) {
	a.events += events
	a.bytes += bytes
}

func newLines() lines {
	return lines{answered: make(chan struct{}, 1), waiting: map[*listener]time.Time{}}
}

// note says that the line of a listener was changed: an event has entered (1) or left (-1) it, or something else.
func (n *lines) note(l *listener, w *waiter, events int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if events != 0 {
		bytes := int64(events) * w.size
		n.all.add(events, bytes)
		if w.message.Type == event.Restated || w.message.Delivery != "" {
			n.resent.add(events, bytes)
		}
	}
	if len(l.line) == 0 {
		delete(n.waiting, l)
	} else {
		n.waiting[l] = l.line[0].entered
	}
}

// sizes returns how much waits, and the part of it that is re-sent objects.
func (n *lines) sizes() (all, resent amount) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all, n.resent
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

// fills reports whether an amount of waiting events uses 1/part of the room for them.
func (p *pipeline) fills(a amount, part int) bool {
	return part*a.events >= max(1, p.Buffer.Events/LineShare) || int64(part)*a.bytes >= p.Buffer.Bytes/LineShare
}

func (p *pipeline) isLineFull() bool {
	all, _ := p.lines.sizes()
	return p.fills(all, 1)
}

// enterLine puts an event into the line of the listener. If there is no room for it, the oldest ones leave the line
// with what is known about them.
func (l *listener) enterLine(w *waiter) {
	w.entered = time.Now()
	l.line = append(l.line, w)
	if w.message == nil {
		return // it is not the first
	}
	w.size = w.message.Size()
	l.pipeline.lines.note(l, w, 1)
	for len(l.line) > 0 && (l.line[0].isReady() || l.pipeline.isLineFull()) {
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
		l.pipeline.lines.note(l, w, 0)
		l.pipeline.progress.reached(&l.source, w.position, w.entered)
		return
	}
	l.pipeline.lines.note(l, w, -1)
	w.message.Read = time.Now()
	l.ledger.Sent(l.pipeline.Name, w.message.Origin.Seq, w.message.Read)
	l.deliver(w.message, w.asked)
}

// deliver puts a message into the queue. It returns false if the queue is closed.
func (l *listener) deliver(m *event.Message, asked *actors.Question) bool {
	if m.Actors != nil {
		if known := asked.Known(); known != nil {
			m.Actors = known
		}
		l.pipeline.Metrics.Actors[m.Actors.GradeOf()].Inc()
	}
	l.counters.Queue(m)
	if err := l.pipeline.push(l.ctx, m); err != nil { // only during shutdown, when the queue is closed
		l.counters.Unqueue(m)
		l.pipeline.Abandoned.Add(1)
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
	case p.every == 0:
	case n == 0:
		p.reached(&l.source, position, time.Now())
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

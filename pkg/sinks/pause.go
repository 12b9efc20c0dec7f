package sinks

import (
	"context"
	"sync"
	"time"
)

// gate keeps the drain from using the destination while the sink is paused.
type gate struct {
	mu      sync.Mutex
	since   time.Time     // when the sink was paused; zero if it is not paused
	resumed chan struct{} // closed when the sink is resumed
	left    chan struct{} // closed when the drain stops using the destination; nil if it does not use it
}

// enter waits until the sink is not paused. If it returns nil, the drain may use the destination until it calls leave.
// It returns ctx's error if ctx ends first.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		resumed, paused := g.resumed, !g.since.IsZero()
		if !paused {
			g.left = make(chan struct{})
		}
		g.mu.Unlock()
		if !paused {
			return nil
		}
		select {
		case <-resumed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryEnter is enter without waiting. It returns false if the sink is paused.
func (g *gate) tryEnter() bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return g.enter(ended) == nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.left)
	g.left = nil
}

// Pause makes the drain stop using the destination until Resume is called: it does not connect and sends nothing. Its
// messages wait in the queue, as if the destination were unavailable. since is the time that PausedSince returns. Pause
// returns when a running attempt to connect or send has ended. The sink must not be paused already.
func (d *Drain) Pause(since time.Time) {
	g := &d.gate
	g.mu.Lock()
	g.since, g.resumed = since, make(chan struct{})
	left := g.left
	g.mu.Unlock()
	if left != nil {
		<-left
	}
}

// Resume ends a pause. The sink must be paused.
func (d *Drain) Resume() {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	d.gate.since = time.Time{}
	close(d.gate.resumed)
}

// PausedSince returns when the sink was paused. It returns the zero time if the sink is not paused.
func (d *Drain) PausedSince() time.Time {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	return d.gate.since
}

package engine

import (
	"slices"
	"time"
)

const (
	// lingerTick is the interval at which linger checks whether events wait.
	lingerTick = 100 * time.Millisecond
	// replaceTimeout is the maximum time that a sink may continue to deliver when the engine is replaced. The other sinks
	// wait for it.
	replaceTimeout = 2 * time.Second
)

// linger waits as Options.Linger says.
func (e *Engine) linger() {
	if e.options.Linger == nil {
		return
	}
	ticker := time.NewTicker(lingerTick)
	defer ticker.Stop()
	for slices.ContainsFunc(e.pipelines, func(p *pipeline) bool {
		return p.Queue.Stats().Items > 0 || len(p.Drain.Parked.Queues()) > 0
	}) {
		select {
		case <-e.options.Linger:
			return
		case <-ticker.C:
		}
	}
}

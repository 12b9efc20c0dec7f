package main

import (
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/election"
)

// The steps of a take-over. docs/availability.md has the same table.
const (
	stepLease  = "lease"      // until this process held the Lease
	stepLog    = "log"        // until it had claimed the state log and read the rest of it
	stepEngine = "engine"     // until the engine was built and the waiting events were opened
	stepReady  = "ready"      // until all sinks had connected and all watches continued
	stepEvent  = "firstEvent" // until a destination had acknowledged an event
)

// takeOver records how long the steps of a take-over take. It is safe for concurrent use. A nil *takeOver is valid and
// records nothing.
type takeOver struct {
	mu     sync.Mutex
	ended  time.Time // when the last step ended
	result control.TakeOver
	first  sync.Once // the first event
}

// newTakeOver returns the record of a take-over that has just ended a vacancy.
func newTakeOver(v election.Vacancy) *takeOver {
	t := &takeOver{ended: v.Since, result: control.TakeOver{Began: v.Since, Reason: string(v.Reason)}}
	t.end(stepLease)
	return t
}

// end records that a step has ended.
func (t *takeOver) end(step string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.result.Steps = append(t.result.Steps, control.Step{Name: step, Seconds: now.Sub(t.ended).Seconds()})
	t.ended = now
}

// endFirst records that the first event was delivered, once.
func (t *takeOver) endFirst() {
	if t != nil {
		t.first.Do(func() { t.end(stepEvent) })
	}
}

// report returns what was recorded so far, or nil if t is nil.
func (t *takeOver) report() *control.TakeOver {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	result := t.result
	result.Steps = slices.Clone(result.Steps)
	return &result
}

package control

import (
	"slices"
	"sync"
	"time"
)

// The steps of a take-over. docs/availability.md has the same table.
const (
	StepLease  = "lease"      // until this process held the Lease
	StepLog    = "log"        // until it had claimed the state log and read the rest of it
	StepEngine = "engine"     // until the engine was built and the waiting events were opened
	StepReady  = "ready"      // until all sinks had connected and all watches continued
	StepEvent  = "firstEvent" // until a destination had acknowledged an event
)

// Recorder records how long the steps of a take-over take. It is safe for concurrent use. A nil *Recorder is valid and
// records nothing.
type Recorder struct {
	mu     sync.Mutex
	ended  time.Time // when the last step ended
	result TakeOver
	first  sync.Once // the first event
}

// NewRecorder returns the Recorder of a take-over. began and reason are those of a TakeOver.
func NewRecorder(began time.Time, reason string) *Recorder {
	return &Recorder{ended: began, result: TakeOver{Began: began, Reason: reason}}
}

// End records that a step has ended.
func (r *Recorder) End(step string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.result.Steps = append(r.result.Steps, Step{Name: step, Seconds: now.Sub(r.ended).Seconds()})
	r.ended = now
}

// EndFirst records that the first event was delivered, once.
func (r *Recorder) EndFirst() {
	if r != nil {
		r.first.Do(func() { r.End(StepEvent) })
	}
}

// Report returns what was recorded so far. It returns nil if r is nil.
func (r *Recorder) Report() *TakeOver {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	result := r.result
	result.Steps = slices.Clone(result.Steps)
	return &result
}

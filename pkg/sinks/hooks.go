package sinks

import (
	"errors"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Hooks are functions that are called when something happens to a message. Each may be nil. They run in the goroutine
// of Run and delay it, so they should only count messages or pass them on.
type Hooks struct {
	// OnSettled is called once for each delivered message. For one object, the calls are in order. A message that was
	// parked is a copy. sent is the time when the Send that delivered m returned; latency is the duration of that Send.
	OnSettled func(m *event.Message, sent time.Time, latency time.Duration)
	// OnStored is called instead of OnSettled for a message that was not sent because the destination already had it.
	OnStored func(m *event.Message)
	// Progress returns the progress events that can be sent now, and how long the drain may wait until it calls Progress
	// again; 0 means that it need not. It is called while every event that was taken from the queue is settled or parked.
	// The events are sent once, or not at all if the destination does not accept them now.
	Progress func() (events []*event.Message, again time.Duration)
	// Between is called between two attempts, and before the destination is checked, while no message is in flight.
	Between func()
	// OnRetry is called every time a message will be tried again.
	OnRetry func(*event.Message)
	// OnRejected is called once for each rejected message: after its replacement is delivered, or after the gap event that
	// replaces it is rejected too. If the replacement is the same event in another form (OutcomeMetadata,
	// OutcomeClaimCheck), OnSettled is called too. In all cases the message is then settled.
	OnRejected func(m *event.Message, r Rejection)
}

func (h *Hooks) settled(m *event.Message, sent time.Time, latency time.Duration) {
	if h.OnSettled != nil {
		h.OnSettled(m, sent, latency)
	}
}

func (h *Hooks) stored(m *event.Message) {
	if h.OnStored != nil {
		h.OnStored(m)
	}
}

func (h *Hooks) between() {
	if h.Between != nil {
		h.Between()
	}
}

// noteRetries calls the hook for the messages that will be tried again.
func (d *Drain) noteRetries() {
	if d.Hooks.OnRetry == nil {
		return
	}
	for k, err := range d.results {
		if err != nil && !IsPermanent(err) && !errors.Is(err, ErrStored) {
			d.Hooks.OnRetry(d.items[d.outItem[k]].orig)
		}
	}
}

// settle records that an item needs no further work. inStream is called unless only a gap event is in the stream.
func (d *Drain) settle(it *item, inStream func(*event.Message)) {
	it.done = true
	if it.rejection != nil {
		if d.Hooks.OnRejected != nil {
			d.Hooks.OnRejected(it.orig, Rejection{Reason: it.reason(), Outcome: it.outcome})
		}
		if !it.outcome.InStream() {
			return
		}
	}
	inStream(it.orig)
}

package sinktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Observer is a Destination that can test with another client whether it accepts messages.
type Observer interface {
	// Takes makes one attempt to store a message. It uses a separate connection and shares no code with the sink. It
	// returns soon after ctx ends.
	Takes(ctx context.Context) error
}

const (
	outage     = 6 * time.Second        // long enough for back-off to have an effect
	tryEvery   = 50 * time.Millisecond  // interval between the attempts of the observer
	tryFor     = 500 * time.Millisecond // timeout of one attempt
	noticeSoon = 2 * time.Second        // maximum delay after the observer's first success
	rounds     = 5                      // of which one has to succeed: the machine may do much else
)

// testNoticedAtOnce tests that a broker is used immediately when it becomes available again, whether it was unavailable
// at the start or became unavailable later.
func testNoticedAtOnce(t *testing.T, _ Harness, d Destination) {
	broker := stopper(t, d)
	observer, ok := d.(Observer)
	if !ok {
		t.Skip("the destination has no other client")
	}
	sendAll(t, connected(t, d), []*event.Message{Message("a", 1, 100)}) // creates missing topics and streams
	n := &noticing{broker: broker, observer: observer, settled: make(chan time.Time, 16), version: 1}
	start := func() {
		n.running = drain(t, d, func(d *sinks.Drain) {
			d.Hooks.OnSettled = func(_ *event.Message, sent time.Time, _ time.Duration) { n.settled <- sent }
		})
	}
	n.inOneRound(t, "away at the start", func() {
		if n.running != nil {
			n.finish(t)
		}
		broker.Stop(t)
		start()
		n.pushNext(t)
	})
	n.inOneRound(t, "away later", func() {
		broker.Stop(t)
		n.pushNext(t)
	})
	n.inOneRound(t, "away while nothing was to be sent", func() {
		broker.Stop(t)
		time.AfterFunc(outage-tryEvery, func() { n.pushNext(t) })
	})
	n.finish(t)
}

// noticing is a drain whose broker is unavailable again and again.
type noticing struct {
	*running
	broker   Stopper
	observer Observer
	settled  chan time.Time
	version  int // of the last event
}

func (n *noticing) pushNext(t *testing.T) {
	t.Helper()
	n.version++
	n.push(t, []*event.Message{Message("a", n.version, 100)})
}

// inOneRound repeats an outage until its end is noticed soon.
func (n *noticing) inOneRound(t *testing.T, name string, begin func()) {
	t.Helper()
	for round := 1; ; round++ {
		begin()
		late := n.comesBack(t, name)
		t.Logf("%s, round %d: delivered %v after another client could", name, round, late)
		if late <= noticeSoon {
			return
		}
		if round == rounds {
			t.Errorf("%s: delivered more than %v after another client could, in each round", name, noticeSoon)
			return
		}
	}
}

// comesBack starts the broker after an outage. It compares the time when the event was delivered with the time when
// another client could deliver a message.
func (n *noticing) comesBack(t *testing.T, name string) (late time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken := make(chan time.Time, 1)
	go func() { taken <- FirstSuccess(ctx, n.observer.Takes) }() // received below
	timer := time.NewTimer(outage)
	defer timer.Stop()
	<-timer.C
	n.broker.Start(t)
	select {
	case own := <-n.settled:
		cancel() // if the other client has not succeeded, it is later
		return own.Sub(<-taken)
	case <-time.After(patience):
		t.Fatalf("%s: not delivered", name)
		return 0
	}
}

// FirstSuccess returns the time of the first successful attempt, or the current time when ctx ends. It starts an
// attempt every 50 ms, even while earlier attempts are running. Every attempt has a timeout of half a second.
func FirstSuccess(ctx context.Context, attempt func(context.Context) error) time.Time {
	var tries sync.WaitGroup
	defer tries.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(tryEvery)
	defer tick.Stop()
	success := make(chan time.Time, 1)
	for {
		tries.Go(func() {
			try, end := context.WithTimeout(ctx, tryFor)
			defer end()
			if attempt(try) == nil {
				select {
				case success <- time.Now():
				default:
				}
			}
		})
		select {
		case <-tick.C:
		case at := <-success:
			return at
		case <-ctx.Done():
			return time.Now()
		}
	}
}

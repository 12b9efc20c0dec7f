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
	noticeSoon = 2 * time.Second        // maximum delay after the observer's first success: tests run beside each other
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
	broker.Stop(t)
	settled := make(chan time.Time, 16)
	r := drain(t, d, func(d *sinks.Drain) {
		d.Hooks.OnSettled = func(_ *event.Message, sent time.Time, _ time.Duration) { settled <- sent }
	})
	r.push(t, []*event.Message{Message("a", 2, 100)})
	comesBack(t, "away at the start", broker, observer, settled)
	broker.Stop(t)
	r.push(t, []*event.Message{Message("a", 3, 100)})
	comesBack(t, "away later", broker, observer, settled)
	broker.Stop(t)
	time.AfterFunc(outage-tryEvery, func() { r.push(t, []*event.Message{Message("a", 4, 100)}) })
	comesBack(t, "away while nothing was to be sent", broker, observer, settled)
	r.finish(t)
}

// comesBack starts the broker after an outage. It compares the time when the event was delivered with the time when
// another client could deliver a message.
func comesBack(t *testing.T, name string, broker Stopper, observer Observer, settled chan time.Time) {
	t.Helper()
	taken := make(chan time.Time, 1)
	go func() { taken <- FirstSuccess(t.Context(), observer.Takes) }() // received below
	timer := time.NewTimer(outage)
	defer timer.Stop()
	<-timer.C
	broker.Start(t)
	var other, own time.Time
	for _, wait := range []struct {
		ch   chan time.Time
		into *time.Time
	}{{taken, &other}, {settled, &own}} {
		select {
		case *wait.into = <-wait.ch:
		case <-time.After(patience):
			t.Fatalf("%s: not delivered", name)
		}
	}
	if late := own.Sub(other); late > noticeSoon {
		t.Errorf("%s: delivered %v after another client could", name, late)
	} else {
		t.Logf("%s: delivered %v after another client could", name, late)
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

package sinktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func stopper(t *testing.T, d Destination) Stopper {
	t.Helper()
	s, ok := d.(Stopper)
	if !ok {
		t.Skip("the destination has no server that could be stopped")
	}
	return s
}

func freezer(t *testing.T, d Destination) Freezer {
	t.Helper()
	f, ok := d.(Freezer)
	if !ok {
		t.Skip("the destination can't be made to hang")
	}
	return f
}

func testAwayAtStart(t *testing.T, _ Harness, d Destination) {
	broker := stopper(t, d)
	broker.Stop(t)
	r := drain(t, d)
	sent := Messages(10, 5)
	r.push(t, sent)
	await(t, "an attempt to connect", func() bool { return r.Status() != "connecting" })
	if r.Connected() {
		t.Error("connected to a broker that is away")
	}
	broker.Start(t)
	r.awaitDelivery(t)
	r.finish(t)
	if !r.Connected() || r.Status() != "ok" {
		t.Errorf("after the start: connected %v, status %q", r.Connected(), r.Status())
	}
	expect(t, d.Records(t), sent, true)
}

func testRestartUnderLoad(t *testing.T, _ Harness, d Destination) {
	broker := stopper(t, d)
	r := drain(t, d)
	var sent []*event.Message
	load := func(rounds int) {
		for range rounds {
			version := len(sent)/40 + 1
			var round []*event.Message
			for o := range 40 {
				round = append(round, Message(fmt.Sprintf("o%d", o), version, 1000))
			}
			r.push(t, round)
			sent = append(sent, round...)
		}
	}
	for range 2 {
		acked := r.queue.Stats().Acked
		load(60)
		await(t, "events at the broker", func() bool { return r.queue.Stats().Acked > acked+100 })
		broker.Stop(t) // at this time the queue is not empty, and batches are being sent
		load(10)
		broker.Start(t)
		load(20)
	}
	r.awaitDelivery(t)
	r.finish(t)
	expect(t, d.Records(t), sent, true)
}

// testStoppedBetweenSends tests that a Send to a stopped broker returns an error for every message and neither panics
// nor hangs. The next Send after the broker's start must succeed.
func testStoppedBetweenSends(t *testing.T, _ Harness, d Destination) {
	broker := stopper(t, d)
	sink := connected(t, d)
	first, second := Messages(5, 2)[:5], Messages(5, 2)[5:]
	sendAll(t, sink, first)
	broker.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	results := make([]error, len(second))
	sink.Send(ctx, second, results)
	for i, err := range results {
		if err == nil || sinks.IsPermanent(err) {
			t.Errorf("message %d, with the broker away: %v", i, err)
		}
	}
	broker.Start(t)
	await(t, "delivery after the broker's return", func() bool {
		return errors.Join(send(t, sink, second)...) == nil
	})
	expect(t, d.Records(t), append(first, second...), true)
}

// soonInOneRound calls f, which is canceled after half a second, until it returns soon. It fails the test if f never
// does.
func soonInOneRound(t *testing.T, what string, f func(context.Context)) {
	t.Helper()
	const soon = 3 * time.Second
	for round := 1; ; round++ {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		start := time.Now()
		f(ctx)
		took := time.Since(start)
		cancel()
		if took <= soon {
			return
		}
		if round == rounds {
			t.Errorf("%s that was canceled after 0.5 s returned after %s, want %s at most", what, took, soon)
			return
		}
	}
}

func testCancelHangingSend(t *testing.T, _ Harness, d Destination) {
	frozen := freezer(t, d)
	sink := connected(t, d)
	first := Messages(50, 1)
	sendAll(t, sink, first)
	// The messages must be larger than the buffers of the sockets, so that writes block too.
	var big []*event.Message
	for i := range 100 {
		big = append(big, Message(fmt.Sprintf("o%d", i%50), 2+i/50, 200_000))
	}
	frozen.Freeze()
	soonInOneRound(t, "a Send", func(ctx context.Context) {
		results := make([]error, len(big))
		sink.Send(ctx, big, results)
		for i, err := range results {
			if err == nil || sinks.IsPermanent(err) {
				t.Errorf("message %d, to a hanging broker: %v", i, err)
			}
		}
	})
	frozen.Thaw()
	await(t, "delivery after the freeze", func() bool { return errors.Join(send(t, sink, big)...) == nil })
	expect(t, d.Records(t), append(first, big...), true)
}

func testCancelHangingConnect(t *testing.T, _ Harness, d Destination) {
	frozen := freezer(t, d)
	frozen.Freeze()
	sink := newSink(t, d)
	soonInOneRound(t, "a Connect", func(ctx context.Context) {
		if err := sink.Connect(ctx); err == nil {
			t.Error("connected to a frozen broker")
		}
	})
	frozen.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	await(t, "a connection after the freeze", func() bool { return sink.Connect(ctx) == nil })
	sendAll(t, sink, Messages(3, 1))
}

// testShutdownDrains tests that all messages of a closed queue are delivered before Run returns.
func testShutdownDrains(t *testing.T, _ Harness, d Destination) {
	r := drain(t, d)
	sent := Messages(100, 9)
	r.push(t, sent)
	r.finish(t)
	if s := r.queue.Stats(); s.Items != 0 || s.Acked != int64(len(sent)) {
		t.Errorf("queue after the drain: %+v", s)
	}
	expect(t, d.Records(t), sent, true)
}

// testShutdownWhileHanging tests that Run returns after its context ends, that the error contains the number of
// undelivered events, and that only delivered events were acknowledged.
func testShutdownWhileHanging(t *testing.T, _ Harness, d Destination) {
	frozen := freezer(t, d)
	r := drain(t, d)
	sent := Messages(20, 3)
	r.push(t, sent[:20])
	await(t, "the first events at the broker", func() bool { return r.queue.Stats().Acked == 20 })
	frozen.Freeze()
	r.push(t, sent[20:])
	r.queue.Close()
	r.stop()
	select {
	case err := <-r.done:
		if err == nil || !strings.HasPrefix(err.Error(), "40 events left undelivered") {
			t.Errorf("Run: %v, want 40 events left", err)
		}
	case <-time.After(patience):
		t.Fatal("Run has not returned after the end of its context")
	}
	frozen.Thaw()
	again := drain(t, d) // the undelivered messages are sent again, as after a restart
	again.push(t, sent[20:])
	again.finish(t)
	expect(t, d.Records(t), sent, true)
}

package sinks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// While a sink is paused, the drain neither connects to its destination nor sends anything, not even at the end. The
// sink's messages stay in the queue, and are sent in order when the sink is resumed.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connects := 0
		sink := &scriptSink{connect: func(context.Context) error { connects++; return nil }}
		q := queueOf(t, message("a", 1))
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q}
		want := func(status string, delivering bool, ids ...string) {
			t.Helper()
			time.Sleep(time.Hour)
			synctest.Wait()
			if d.Status() != status || d.Delivering() != delivering {
				t.Errorf("status %q, delivering %t, want %q, %t", d.Status(), d.Delivering(), status, delivering)
			}
			if diff := cmp.Diff(ids, sink.ids()); diff != "" {
				t.Errorf("at the broker (-want +got):\n%s", diff)
			}
		}
		d.Pause(time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		want("paused since 2000-01-01T00:00:00Z", false)
		if connects > 0 {
			t.Error("connected while paused")
		}
		d.Resume()
		want("ok", true, "a.1")
		d.Pause(time.Now())
		for n := range 3 {
			if err := q.Push(t.Context(), message("a", n+2)); err != nil {
				t.Fatal(err)
			}
		}
		want("paused since 2000-01-01T02:00:00Z", false, "a.1")
		d.Resume()
		want("ok", true, "a.1", "a.2", "a.3", "a.4")
		d.Pause(time.Now())
		if err := q.Push(t.Context(), message("a", 5)); err != nil {
			t.Fatal(err)
		}
		want("paused since 2000-01-01T04:00:00Z", false, "a.1", "a.2", "a.3", "a.4")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || q.Stats().Items != 1 || len(sink.ids()) != 4 {
			t.Errorf("ended with %v, %d messages in the queue, %v at the broker", err, q.Stats().Items, sink.ids())
		}
	})
}

// Pause returns only when the running Send has returned. Between two attempts during an outage, Pause returns at once,
// and no further attempt is made.
func TestPauseWaitsForTheAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		took   time.Duration
		sends  int
	}{
		"acknowledged": {nil, 9 * time.Second, 1},
		"away":         {errAway, 9 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &scriptSink{send: func(context.Context, *event.Message) error {
					time.Sleep(10 * time.Second)
					return test.answer
				}}
				d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: queueOf(t, message("a", 1))}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				time.Sleep(time.Second)
				began := time.Now()
				d.Pause(began)
				if took := time.Since(began); took != test.took {
					t.Errorf("took %s, want %s", took, test.took)
				}
				time.Sleep(time.Hour)
				if sink.sends != test.sends {
					t.Errorf("%d attempts, want %d", sink.sends, test.sends)
				}
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// endedAt is a context with an error from a given time on. Its Done channel is not closed then.
type endedAt struct {
	context.Context

	at time.Time
}

var errEnded = errors.New("ended")

func (c endedAt) Err() error {
	if time.Now().Before(c.at) {
		return c.Context.Err()
	}
	return errEnded
}

// If a drain is ended at the moment at which it would check the destination, it returns the reason for the end.
func TestEndAtACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: &scriptSink{}, Queue: queueOf(t)}
		ctx := endedAt{t.Context(), time.Now().Add(15 * time.Second)}
		if err := d.Run(ctx); !errors.Is(err, errEnded) {
			t.Error(err)
		}
	})
}

// A destination that goes away after it was connected is not delivering from the first failed attempt until the next
// one that succeeds, while Connected stays true.
func TestDelivering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(150 * time.Second)
		sink := &scriptSink{send: func(context.Context, *event.Message) error {
			if time.Now().Before(back) {
				return errAway
			}
			return nil
		}}
		q := queueOf(t)
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q}
		ended := make(chan error, 1)
		go func() { ended <- d.Run(t.Context()) }()
		want := func(delivering bool, status string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !d.Connected() || d.Delivering() != delivering || d.Status() != status {
				t.Errorf("connected %t, delivering %t, %q", d.Connected(), d.Delivering(), d.Status())
			}
		}
		want(true, "ok")
		if err := q.Push(t.Context(), message("a", 1)); err != nil {
			t.Fatal(err)
		}
		want(false, "retrying since 2000-01-01T00:01:00Z: connection refused")
		want(true, "ok")
		q.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// While there is nothing to send, the drain checks the destination, and notices at once when it is available again. A
// message is sent even if the check fails. A paused sink is not checked, and a queue that is closed during the pause ends
// the drain.
func TestAnIdleSinkIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		var away atomic.Bool
		sink := &scriptSink{connect: func(context.Context) error {
			checks.Add(1)
			if away.Load() {
				return errAway
			}
			return nil
		}}
		q := queueOf(t)
		log, text := logged()
		d := &sinks.Drain{Parked: noneParked(t), Logger: log, Sink: sink, Queue: q}
		ended := make(chan error, 1)
		go func() { ended <- d.Run(t.Context()) }()
		after := func(pause time.Duration, delivering bool, least, most int32) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			if n := checks.Swap(0); d.Delivering() != delivering || n < least || n > most {
				t.Errorf("delivering %t after %d checks in %v, %q", d.Delivering(), n, pause, d.Status())
			}
		}
		after(time.Minute, true, 5, 5) // one of them is the first connection
		away.Store(true)
		after(time.Minute, false, 180, 400) // the first one after 15 seconds
		if err := q.Push(t.Context(), message("a", 1)); err != nil {
			t.Fatal(err)
		}
		after(0, true, 0, 0)
		after(time.Minute, false, 180, 400)
		away.Store(false)
		after(sinks.RetryInterval, true, 1, 1)
		after(time.Minute, true, 4, 4)
		if ids := sink.ids(); len(ids) != 1 {
			t.Errorf("delivered: %q", ids)
		}
		d.Pause(time.Now())
		after(time.Minute, false, 0, 0)
		q.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := strings.Count(text.String(), "destination unavailable"); got != 2 {
			t.Errorf("logged %d times, want 2:\n%s", got, text)
		}
	})
}

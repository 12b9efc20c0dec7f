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

func progressEvent() *event.Message {
	m := control(event.Progress, "p")
	m.GapInfo, m.ProgressInfo = nil, &event.ProgressInfo{}
	return m
}

// every returns a hook that returns a progress event at each interval.
func every(interval time.Duration) func() ([]*event.Message, time.Duration) {
	next := time.Now()
	return func() (events []*event.Message, again time.Duration) {
		if now := time.Now(); !now.Before(next) {
			events, next = []*event.Message{progressEvent()}, now.Add(interval)
		}
		return events, time.Until(next)
	}
}

// A drain sends progress events at their interval, also if there is nothing else to send. It checks the destination as
// often as without them.
func TestDrainSendsProgress(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			connects := 0
			sink, seen := &scriptSink{connect: func(context.Context) error { connects++; return nil }}, &seen{}
			hooks := seen.hooks()
			hooks.Progress = every(interval)
			q := queueOf(t)
			d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q, Hooks: hooks}
			stop := running(t, d)
			time.Sleep(2*time.Minute + time.Millisecond)
			synctest.Wait()
			if want := int(2*time.Minute/interval) + 1; len(sink.broker) != want || len(seen.settled) > 0 {
				t.Errorf("every %v: %d progress events, want %d; settled %v", interval, len(sink.broker), want, seen.settled)
			}
			if connects != 9 {
				t.Errorf("every %v: the destination was checked %d times", interval, connects)
			}
			sink.broker = nil
			if err := q.Push(t.Context(), message("a", 1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if diff := cmp.Diff([]string{"a.1"}, sink.ids()); diff != "" {
				t.Errorf("every %v: an event waits (-want +got):\n%s", interval, diff)
			}
			_ = stop()
		})
	}
}

// A progress event that is not acknowledged is not sent again, and changes nothing for the events after it.
func TestDrainDoesNotRepeatProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		sink := &scriptSink{send: func(_ context.Context, m *event.Message) error {
			if m.Type == event.Progress {
				refused++
				return sinks.MaybeWritten(errAway)
			}
			return nil
		}}
		log, text := logged()
		q := queueOf(t)
		d := &sinks.Drain{
			Parked: noneParked(t), Logger: log, Sink: sink, Queue: q, Hooks: sinks.Hooks{Progress: every(10 * time.Second)},
		}
		stop := running(t, d)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if refused != 4 || !d.Delivering() {
			t.Errorf("%d attempts, status %s", refused, d.Status())
		}
		if n := strings.Count(text.String(), "cannot send progress event"); n != 1 {
			t.Errorf("logged %d times: %s", n, text)
		}
		if err := q.Push(t.Context(), message("a", 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"a.1"}, sink.ids()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		_ = stop()
	})
}

// Nobody gets progress events from a sink that is paused, whose destination is away, or whose process may not lead.
func TestDrainWithoutProgress(t *testing.T) {
	for name, edit := range map[string]func(d *sinks.Drain, sink *scriptSink){
		"paused": func(d *sinks.Drain, _ *scriptSink) { d.Pause(time.Now()) },
		"away": func(_ *sinks.Drain, sink *scriptSink) {
			first := true
			sink.connect = func(context.Context) error {
				if first {
					first = false
					return nil
				}
				return errors.New("away")
			}
			sink.send = func(context.Context, *event.Message) error { return errors.New("away") }
		},
		"not the leader": func(d *sinks.Drain, _ *scriptSink) {
			var leads atomic.Bool
			d.Leads, d.Fenced = leads.Load, func() bool { return true }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink, calls := &scriptSink{}, 0
				d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: queueOf(t)}
				d.Hooks.Progress = func() ([]*event.Message, time.Duration) {
					calls++
					return []*event.Message{progressEvent()}, time.Second
				}
				edit(d, sink)
				stop := running(t, d)
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(sink.broker) > 0 || calls > 400 { // an unavailable destination is checked every RetryInterval
					t.Errorf("at the broker: %v; %d calls", sink.ids(), calls)
				}
				_ = stop()
			})
		})
	}
}

// A progress event has no mark of its writer, so nobody reads it back.
func TestProgressIsNotReadBack(t *testing.T) {
	m := progressEvent()
	marks := sinks.Marks{}
	if of := marks.Of("w", message("a", 1)); of == "" {
		t.Error("an event has no mark")
	}
	if mark, of := sinks.Mark("w", m), marks.Of("w", m); mark != "" || of != "" {
		t.Errorf("marks %q and %q", mark, of)
	}
	found := sinks.Found{Writer: "w"}
	found.Sent(m, "part", "place")
	if found.Note(sinks.RecordOf("w", m)); !found.Empty() {
		t.Error("it was noted")
	}
}

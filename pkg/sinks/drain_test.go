package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

func TestDrainDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connects := 0
		sink, seen := &scriptSink{connect: func(context.Context) error { connects++; return nil }}, &seen{}
		q := queueOf(t, message("a", 1), message("b", 1), message("a", 2))
		q.Close()
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q, Hooks: seen.hooks()}
		if d.Connected() || d.Status() != "connecting" {
			t.Errorf("before Run: connected %v, status %q", d.Connected(), d.Status())
		}
		if err := d.Run(t.Context()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		want := []string{"a.1", "b.1", "a.2"}
		if diff := cmp.Diff(want, sink.ids()); diff != "" {
			t.Errorf("at the broker (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, seen.settled); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		if s := q.Stats(); s.Acked != 3 || s.Items != 0 {
			t.Errorf("queue: %+v", s)
		}
		if !d.Connected() || d.Status() != "ok" || connects != 1 {
			t.Errorf("after Run: connected %v (%d times), status %q", d.Connected(), connects, d.Status())
		}
	})
}

// The drain tries an unavailable destination at least every RetryInterval, without end. If a destination rejects the
// requests, the pauses between the attempts grow. Both failures are logged twice.
func TestDrainTriesAgain(t *testing.T) {
	t.Run("away", func(t *testing.T) {
		testTriesAgain(t, errAway, 3*time.Minute, sinks.RetryInterval/2, sinks.RetryInterval)
	})
	t.Run("rejected", func(t *testing.T) {
		err := &sinks.ConnectError{Step: sinks.StepAuthenticate, Err: errAway, Rejected: true}
		testTriesAgain(
			t,
			fmt.Errorf("two servers: %w", errors.Join(errors.New("one"), err)),
			3*time.Hour,
			5*time.Second,
			15*time.Second,
		)
	})
}

func testTriesAgain(t *testing.T, cause error, away, least, most time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		start := time.Now()
		back := start.Add(away)
		sink := &scriptSink{connect: func(context.Context) error {
			tries = append(tries, time.Now())
			if time.Now().Before(back) {
				return cause
			}
			return nil
		}}
		q := queueOf(t, message("a", 1))
		q.Close()
		log, text := logged()
		d := &sinks.Drain{Parked: noneParked(t), Sink: sink, Queue: q, Logger: log}
		done := make(chan error)
		go func() { done <- d.Run(t.Context()) }()
		time.Sleep(away / 2)
		synctest.Wait()
		if want := "connecting since 2000-01-01T00:00:00Z: " + cause.Error(); d.Status() != want || d.Connected() {
			t.Errorf("meanwhile: connected %v, status %q, want %q", d.Connected(), d.Status(), want)
		}
		if err := <-done; err != nil {
			t.Fatalf("Run: %v", err)
		}
		if d := tries[1].Sub(tries[0]); d < 50*time.Millisecond || d > 150*time.Millisecond {
			t.Errorf("first wait %s, want 100ms, half to one and a half", d)
		}
		longest := time.Duration(0)
		for i := range tries[1:] {
			longest = max(longest, tries[i+1].Sub(tries[i]))
		}
		if longest < least || longest > most {
			t.Errorf("longest wait %s, want %s to %s", longest, least, most)
		}
		if got := strings.Count(text.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings, want 1:\n%s", got, text)
		}
		if !strings.Contains(text.String(), "destination available again") {
			t.Errorf("log does not say that it is back:\n%s", text)
		}
	})
}

// A changed cause is logged too, but not at every change.
func TestDrainLogsChangedCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		sink := &scriptSink{connect: func(context.Context) error { n++; return fmt.Errorf("cause %d", n%2) }}
		log, text := logged()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		d := &sinks.Drain{Parked: noneParked(t), Sink: sink, Queue: queueOf(t), Logger: log}
		if err := d.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Run: %v", err)
		}
		if got := strings.Count(text.String(), "level=WARN"); got < 3 || got > 11 {
			t.Errorf("%d warnings in ten minutes, want about one a minute:\n%s", got, text)
		}
	})
}

// Progress resets the back-off: if a broker accepts one message per attempt, the pauses do not grow.
func TestDrainResetsBackoffOnProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		sink := &scriptSink{}
		last := 0
		sink.send = func(context.Context, *event.Message) error {
			if sink.sends != last {
				last = sink.sends
				return nil
			}
			return errAway
		}
		q := queueOf(t)
		for i := range n {
			_ = q.Push(t.Context(), message(fmt.Sprintf("o%02d", i), 1))
		}
		q.Close()
		start := time.Now()
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q}
		if err := d.Run(t.Context()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if sink.sends != n {
			t.Errorf("%d sends, want %d", sink.sends, n)
		}
		if d := time.Since(start); d < n*50*time.Millisecond/2 || d > n*150*time.Millisecond {
			t.Errorf("took %s for %d failures, want about 100ms each", d, n)
		}
	})
}

// Retried messages go out again in order, before anything new is taken, and the queue is acknowledged as far as its
// front is settled.
func TestDrainRetriesBeforeTakingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := map[string]bool{"b.1": true, "c.1": true}
		sink := &scriptSink{}
		sink.send = func(_ context.Context, m *event.Message) error {
			if fail[m.ID] && sink.sends <= 2 {
				return errAway
			}
			return nil
		}
		q := queueOf(t, message("a", 1), message("b", 1), message("b", 2), message("c", 1), message("d", 1))
		var acked []int64
		seen := &seen{}
		hooks := seen.hooks()
		hooks.OnRetry = func(m *event.Message) {
			seen.hooks().OnRetry(m)
			acked = append(acked, q.Stats().Acked)
		}
		q.Close()
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q, MaxBatch: 4, Hooks: hooks}
		if err := d.Run(t.Context()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		want := [][]string{{"a.1", "b.1", "b.2", "c.1"}, {"b.1", "b.2", "c.1"}, {"b.1", "b.2", "c.1"}, {"d.1"}}
		if diff := cmp.Diff(want, sink.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int64{0, 0, 0, 1, 1, 1}, acked); diff != "" { // the hook is called before the acknowledgement
			t.Errorf("acknowledged at the failures (-want +got):\n%s", diff)
		}
		if seen.retries != 6 {
			t.Errorf("%d retries, want 6", seen.retries)
		}
	})
}

// A gap event replaces a rejected message. If the gap event is rejected too, the rejection is only counted.
func TestDrainReplacesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gapTries := 0
		sink := &scriptSink{send: func(_ context.Context, m *event.Message) error {
			switch m.ID {
			case "a.1":
				return sinks.Permanent(fmt.Errorf("%w: 9 MiB", sinks.ErrOversize))
			case "a.1.gap":
				if gapTries++; gapTries < 3 {
					return errAway
				}
			case "b.1", "b.1.gap":
				return sinks.Permanent(errors.New("bad subject"))
			}
			return nil
		}}
		seen := &seen{}
		q := queueOf(t, message("a", 1), message("a", 2), message("b", 1), message("c", 1))
		q.Close()
		log, text := logged()
		d := &sinks.Drain{Parked: noneParked(t), Sink: sink, Queue: q, Hooks: seen.hooks(), Logger: log}
		if err := d.Run(t.Context()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if diff := cmp.Diff([]string{"c.1", "a.1.gap", "a.2"}, sink.ids()); diff != "" {
			t.Errorf("at the broker (-want +got):\n%s", diff)
		}
		gap := sink.broker[1]
		if gap.Type != event.Gap || gap.GapInfo.Reason != event.ReasonOversize ||
			!strings.Contains(gap.GapInfo.Message, "9 MiB") {
			t.Errorf("gap event: %v %+v", gap.Type, gap.GapInfo)
		}
		if diff := cmp.Diff([]string{"a.1", "b.1"}, seen.refused); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"c.1", "a.2"}, seen.settled); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
		if got := strings.Count(text.String(), "event rejected, sending a replacement"); got != 2 {
			t.Errorf("%d log lines of refusals, want 2:\n%s", got, text)
		}
	})
}

// Many refusals do not fill the log.
func TestDrainLimitsRefusalLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &scriptSink{send: func(_ context.Context, m *event.Message) error {
			if m.Type != event.Gap {
				return sinks.Permanent(errors.New("no"))
			}
			return nil
		}}
		q := queueOf(t)
		for i := range 1000 {
			_ = q.Push(t.Context(), message(fmt.Sprint(i), 1))
		}
		q.Close()
		log, text := logged()
		if err := (&sinks.Drain{Parked: noneParked(t), Sink: sink, Queue: q, Logger: log}).Run(t.Context()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if got := strings.Count(text.String(), "level=WARN"); got != 3 || len(sink.broker) != 1000 {
			t.Errorf("%d log lines, %d gaps, want 3 and 1000", got, len(sink.broker))
		}
	})
}

// A control event is a barrier: it is sent alone, after all earlier messages are settled.
func TestDrainControlEventsAreBarriers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := false
		sink := &scriptSink{send: func(_ context.Context, m *event.Message) error {
			if m.ID == "a.1" && !failed {
				failed = true
				return errAway
			}
			return nil
		}}
		q := queueOf(
			t,
			control(event.Gap, "g0"),
			message("a", 1),
			message("b", 1),
			control(event.Synced, "s"),
			control(event.Gap, "g"),
			message("a", 2),
		)
		q.Close()
		d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q}
		if err := d.Run(t.Context()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		want := [][]string{{"g0"}, {"a.1", "b.1"}, {"a.1"}, {"s"}, {"g"}, {"a.2"}}
		if diff := cmp.Diff(want, sink.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

// A Send that hangs ends with the context. Its undelivered messages are counted and stay in the queue.
func TestDrainEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &scriptSink{send: func(ctx context.Context, m *event.Message) error {
			if m.Identity.Name == "a" {
				return nil
			}
			<-ctx.Done()
			return sinks.MaybeWritten(ctx.Err())
		}}
		q := queueOf(t, message("a", 1), message("b", 1), message("a", 2), message("c", 1))
		q.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		seen := &seen{}
		start := time.Now()
		d := &sinks.Drain{
			Parked: noneParked(t), Logger: toTest(t), Sink: sink, Queue: q, MaxBatch: 3, Hooks: seen.hooks(),
		}
		err := d.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "3 events left undelivered") {
			t.Fatalf("Run: %v, want 3 left", err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("returned after %s, want 5s", d)
		}
		// a.1 was at the front and is acknowledged; a.2 is delivered, but behind b.1.
		if q.Stats().Acked != 1 {
			t.Errorf("acknowledged %d, want 1", q.Stats().Acked)
		}
		if diff := cmp.Diff([]string{"a.1", "a.2"}, seen.settled); diff != "" {
			t.Errorf("settled (-want +got):\n%s", diff)
		}
	})
}

// The end of the context also ends the wait for an unavailable broker, a back-off, and the wait for messages.
func TestDrainContextEndsEveryWait(t *testing.T) {
	away := func(context.Context) error { return errAway }
	tests := map[string]struct {
		sink *scriptSink
		ms   []*event.Message
		left int
	}{
		"connecting": {&scriptSink{connect: away}, []*event.Message{message("a", 1)}, 1},
		"hanging in Connect": {&scriptSink{connect: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}, nil, 0},
		"backing off": {
			&scriptSink{send: func(context.Context, *event.Message) error { return errAway }},
			[]*event.Message{message("a", 1)},
			1,
		},
		"idle": {&scriptSink{}, []*event.Message{message("a", 1)}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				d := &sinks.Drain{Parked: noneParked(t), Logger: toTest(t), Sink: test.sink, Queue: queueOf(t, test.ms...)}
				err := d.Run(ctx)
				if want := fmt.Sprintf(
					"%d events left undelivered",
					test.left,
				); err == nil ||
					!strings.HasPrefix(err.Error(), want) {
					t.Errorf("Run: %v, want %d left", err, test.left)
				}
				if d := time.Since(start); d != time.Minute {
					t.Errorf("ended after %s, want a minute", d)
				}
			})
		})
	}
}

// With random failures of every class, nothing is lost, each object keeps its order, only unclear failures repeat a
// message, and each message is settled once.
func TestDrainRandomFailures(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			unclear := make(map[string]int)
			sink := &scriptSink{}
			sink.send = func(_ context.Context, m *event.Message) error {
				switch p := r.IntN(20); {
				case p < 2:
					return errAway
				case p < 3:
					unclear[m.ID]++
					return sinks.MaybeWritten(errWritten)
				case p < 4:
					return sinks.MaybeWritten(errAway) // it was not
				}
				return nil
			}
			want := make(map[string][]string)
			q := queueOf(t)
			total := 20 + r.IntN(200)
			go func() {
				r := rand.New(rand.NewPCG(seed, 2))
				for range total {
					name := fmt.Sprint("o", r.IntN(8))
					m := message(name, len(want[name])+1)
					want[name] = append(want[name], m.ID)
					if q.Push(t.Context(), m) != nil {
						return
					}
				}
				q.Close()
			}()
			seen := &seen{}
			log, _ := logged()
			d := &sinks.Drain{
				Parked: noneParked(t), Sink: sink, Queue: q, MaxBatch: 1 + r.IntN(32), Hooks: seen.hooks(), Logger: log,
			}
			if err := d.Run(t.Context()); err != nil {
				t.Fatalf("seed %d: Run: %v", seed, err)
			}
			if diff := cmp.Diff(want, sequences(sink.broker)); diff != "" {
				t.Fatalf("seed %d: sequences at the broker (-want +got):\n%s", seed, diff)
			}
			times := make(map[string]int)
			for _, m := range sink.broker {
				times[m.ID]++
			}
			for id, n := range times {
				if n != 1+unclear[id] {
					t.Errorf("seed %d: %s is there %d times after %d unclear failures", seed, id, n, unclear[id])
				}
			}
			settled := make(map[string]bool)
			for _, id := range seen.settled {
				settled[id] = true
			}
			if len(seen.settled) != total || len(settled) != total || q.Stats().Acked != int64(total) {
				t.Errorf(
					"seed %d: %d settled, %d of them distinct, %d acknowledged, want %d",
					seed,
					len(seen.settled),
					len(settled),
					q.Stats().Acked,
					total,
				)
			}
		})
	}
}

func TestErrorClasses(t *testing.T) {
	wrapped := fmt.Errorf("send: %w", sinks.Permanent(fmt.Errorf("%w: 2 MiB", sinks.ErrOversize)))
	if !sinks.IsPermanent(wrapped) || !errors.Is(wrapped, sinks.ErrOversize) || sinks.IsMaybeWritten(wrapped) {
		t.Errorf("%v: class lost", wrapped)
	}
	maybe := fmt.Errorf("send: %w", sinks.MaybeWritten(context.Canceled))
	if !sinks.IsMaybeWritten(maybe) || !errors.Is(maybe, context.Canceled) || sinks.IsPermanent(maybe) {
		t.Errorf("%v: class lost", maybe)
	}
}

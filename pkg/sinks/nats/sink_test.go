package nats_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/scale"
)

func cmpDiff(want, got any) string { return cmp.Diff(want, got) }

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{
		New:      func(t *testing.T) sinktest.Destination { return newBroker(t) },
		Oversize: 1<<20 + 1, // nats-server's default max_payload is 1 MiB
	})
}

func TestConformanceStructured(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{
		New:         func(t *testing.T) sinktest.Destination { return structuredBroker{newBroker(t)} },
		OnlyContent: !scale.Long(),
	})
}

// structuredBroker's sinks send in structured mode.
type structuredBroker struct{ *broker }

func (b structuredBroker) NewSink(t testing.TB) sinks.Sink {
	return structuredSink{b.broker.NewSink(t).(*nats.Sink)}
}

type structuredSink struct{ *nats.Sink }

func (s structuredSink) Send(ctx context.Context, batch []*event.Message, results []error) {
	structured := make([]*event.Message, len(batch))
	for i, m := range batch {
		c := *m
		c.Structured = true
		structured[i] = &c
	}
	s.Sink.Send(ctx, structured, results)
}

// connect returns a connected sink, closed at the end of the test.
func connect(t testing.TB, b *broker) *nats.Sink {
	t.Helper()
	sink := b.NewSink(t).(*nats.Sink)
	t.Cleanup(func() { closeSink(t, sink) })
	mustConnect(t, sink)
	return sink
}

// mustConnect connects a sink. It repeats the attempt, as a drain does.
func mustConnect(t testing.TB, sink *nats.Sink) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := sink.Connect(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("Connect: %v", err)
		}
	}
}

func closeSink(t testing.TB, sink *nats.Sink) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	if err := sink.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func try(t testing.TB, sink *nats.Sink, batch ...*event.Message) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	results := make([]error, len(batch))
	sink.Send(ctx, batch, results)
	return results
}

func send(t testing.TB, sink *nats.Sink, batch ...*event.Message) {
	t.Helper()
	if err := errors.Join(settle(t, sink, batch...)...); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

// settle sends a batch. If the machine is so slow that an acknowledgement misses its timeout, settle sends again what is
// not stored, as a drain does. The error of a message that was in doubt and has been stored is nil.
func settle(t testing.TB, sink *nats.Sink, batch ...*event.Message) []error {
	t.Helper()
	results, doubtful := try(t, sink, batch...), map[int]bool{}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		var open []int
		var rest []*event.Message
		for i, err := range results {
			if sinks.IsMaybeWritten(err) {
				doubtful[i] = true
			}
			if err != nil && !errors.Is(err, sinks.ErrStored) && !sinks.IsPermanent(err) {
				open, rest = append(open, i), append(rest, batch[i])
			}
		}
		if len(rest) == 0 || len(doubtful) == 0 {
			break
		}
		for n, err := range try(t, sink, rest...) {
			if doubtful[open[n]] && errors.Is(err, sinks.ErrStored) {
				err = nil
			}
			results[open[n]] = err
		}
	}
	return results
}

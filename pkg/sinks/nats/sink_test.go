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
	if err := sink.Connect(t.Context()); err != nil {
		t.Fatalf("Connect: %v", err)
	}
	return sink
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
	if err := errors.Join(try(t, sink, batch...)...); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

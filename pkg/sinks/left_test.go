package sinks_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Events that an earlier process left on disk come again from their source, and are in the same batch. They are sent
// once, even if the first attempt fails.
func TestDrainSendsWhatWasLeftOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := func(seq uint64, m *event.Message) *event.Message {
			m.Origin.Seq, m.Origin.Left = seq, seq == 0
			m.Identity.UID, m.ID = "a", "a."+m.Identity.ResourceVersion
			return m
		}
		restored, again := from(3, message("a", 1)), from(4, message("a", 2))
		restored.History, again.Delivery = "9", "d1"
		failed := false
		sink := &decidingSink{found: sinks.Found{Writer: "w"}}
		sink.send = func(_ context.Context, m *event.Message) error {
			if fails := !failed && m.ID == "a.2"; fails {
				failed = true
				return errAway
			}
			return nil
		}
		seen := &seen{}
		var stored []string
		hooks := seen.hooks()
		hooks.OnStored = func(m *event.Message) { stored = append(stored, m.ID) }
		d := &sinks.Drain{
			Sink: sink, Parked: noneParked(t), Hooks: hooks, Logger: toTest(t), ReadsBack: true,
			Queue: queueOf(t,
				from(0, message("a", 1)), from(0, message("a", 2)), from(1, message("a", 1)), from(2, message("a", 2)),
				restored, again, from(5, message("a", 3)), from(6, message("a", 3))),
		}
		d.Queue.Close()
		if err := d.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a.1", "a.2", "a.1", "a.2", "a.3", "a.3"}, sink.ids()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"a.1", "a.2"}, stored); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}

// decidingSink decides about all messages of a batch before it writes any, as the Kafka sink does.
type decidingSink struct {
	scriptSink
	found sinks.Found
}

func (s *decidingSink) Send(ctx context.Context, batch []*event.Message, results []error) {
	var rest []*event.Message
	var places []int
	for i, m := range batch {
		if results[i] = sinks.ErrStored; !s.found.Has(m, "") {
			rest, places = append(rest, m), append(places, i)
		}
	}
	answers := make([]error, len(rest))
	s.scriptSink.Send(ctx, rest, answers)
	for k, err := range answers {
		if results[places[k]] = err; err == nil && rest[k].Origin.Left {
			s.found.Sent(rest[k], "", "")
		}
	}
}

// The events of an object that an earlier process left on disk are in two batches. The source brings them all again in
// the second one.
func TestDrainLeftInTwoBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := func(seq uint64, version int) *event.Message {
			m := message("a", version)
			m.Origin.Seq, m.Origin.Left = seq, seq == 0
			m.Identity.UID, m.ID = "a", fmt.Sprintf("a.%d", version)
			return m
		}
		sink := &decidingSink{found: sinks.Found{Writer: "w"}}
		d := &sinks.Drain{
			Sink: sink, Parked: noneParked(t), Logger: toTest(t), ReadsBack: true, MaxBatch: 2,
			Queue: queueOf(t, message("b", 1), a(0, 1), a(0, 2), a(1, 1), a(2, 2), a(3, 3)),
		}
		d.Queue.Close()
		if err := d.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"b.1", "a.1", "a.2", "a.3"}, sink.ids()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

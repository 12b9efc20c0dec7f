package sinks_test

import (
	"context"
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
		from := func(seq uint64, m *event.Message) *event.Message { m.Origin.Seq = seq; return m }
		restored, again := from(3, message("a", 1)), from(4, message("a", 2))
		restored.History, again.Delivery = "9", "d1"
		failed := false
		sink := &scriptSink{send: func(_ context.Context, m *event.Message) error {
			if fails := !failed && m.ID == "a.2"; fails {
				failed = true
				return errAway
			}
			return nil
		}}
		seen := &seen{}
		var stored []string
		hooks := seen.hooks()
		hooks.OnStored = func(m *event.Message) { stored = append(stored, m.ID) }
		d := &sinks.Drain{
			Sink: sink, Parked: noneParked(t), Hooks: hooks, Logger: toTest(t), ReadsBack: true,
			Queue: queueOf(t,
				message("a", 1), message("a", 2), from(1, message("a", 1)), from(2, message("a", 2)), restored, again,
				from(5, message("a", 3)), from(6, message("a", 3))),
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

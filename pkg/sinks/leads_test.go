package sinks_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// While another process may be the leader, nothing is written to a destination that cannot reject it, and no payload is
// stored.
func TestDrainLeads(t *testing.T) {
	for name, test := range map[string]struct {
		fenced func() bool
		while  []string // at the broker while another process may be the leader
	}{
		"without a fence":  {nil, nil},
		"fence is missing": {func() bool { return false }, nil},
		"fenced":           {func() bool { return true }, []string{"a.1", "b.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var leads atomic.Bool
				sink, store := &scriptSink{send: tooLarge}, &stores{}
				d := &sinks.Drain{
					Parked: noneParked(t), Sink: sink, Logger: toTest(t), Leads: leads.Load, Fenced: test.fenced,
					Queue:      queueOf(t, message("a", 1), message("b", 1), large("a", 2, event.PayloadObject), message("b", 2)),
					Rejections: sinks.Rejections{Oversize: sinks.OutcomeClaimCheck, Payloads: store},
				}
				d.Queue.Close()
				done := make(chan error)
				go func() { done <- d.Run(t.Context()) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := sink.ids(); !cmp.Equal(got[:min(len(got), len(test.while))], test.while) || len(store.kept) > 0 {
					t.Errorf("at the broker: %q, stored: %d", got, len(store.kept))
				}
				if test.fenced == nil && (len(sink.ids()) > 0 || d.Delivering()) {
					t.Errorf("delivered %q", sink.ids())
				}
				leads.Store(true)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if got := len(sink.ids()); got != 4 {
					t.Errorf("%d events at the broker", got)
				}
			})
		})
	}
}

package sinks_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// The configuration is changed while events are parked, so that events of the same objects go to another topic. The
// parked events are sent there first, before all newer events of their objects.
func TestAnotherTopicWhileEventsAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, store, want := newRouted(), noneParked(t), map[string][]string{}
		sink.divided["services"] = true
		sink.down["services"] = errNoTopic
		push := func(q *fifo.Queue[*event.Message], m *event.Message) {
			want[m.Identity.Name] = append(want[m.Identity.Name], m.ID)
			_ = q.Push(t.Context(), m)
		}
		q := queueOf(t)
		stop := running(t, &sinks.Drain{Sink: sink, Queue: q, Logger: toTest(t), Parked: store})
		for i := range 20 {
			push(q, of("services", message([]string{"a", "b"}[i%2], i/2+1)))
			synctest.Wait()
		}
		_ = stop()

		delete(sink.down, "services")
		sink.prefix = "new-"
		q = queueOf(t)
		stop = running(t, &sinks.Drain{Sink: sink, Queue: q, MaxBatch: 2, Logger: toTest(t), Parked: store})
		push(q, of("services", message("a", 11)))
		push(q, of("services", message("b", 11)))
		push(q, message("c", 1)) // of another resource
		time.Sleep(time.Minute)
		push(q, of("services", message("b", 12)))
		time.Sleep(time.Minute)
		if !store.Empty() {
			t.Errorf("parked: %+v", store.Queues())
		}
		if diff := cmp.Diff(want, sequences(sink.stored())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		_ = stop()
	})
}

// whole is a destination without parts, and its failures are those of the whole destination.
type whole struct{ *scriptSink }

func (whole) Part(*event.Message) string { return "" }

// The configuration is changed while events are parked, so that the destination has no parts any more. The parked events
// are sent before all newer events of their objects, however many they are.
func TestADestinationWithoutPartsWhileEventsAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, store := newRouted(), noneParked(t)
		before.down["configmaps"] = errNoTopic
		var want []string
		q := queueOf(t)
		stop := running(t, &sinks.Drain{Sink: before, Queue: q, Logger: toTest(t), Parked: store})
		for i := range 20 {
			m := message("a", i+1)
			want = append(want, m.ID)
			_ = q.Push(t.Context(), m)
		}
		time.Sleep(time.Minute)
		_ = stop()

		sink := whole{&scriptSink{}}
		q = queueOf(t, message("a", 21), of("services", message("b", 1)))
		want = append(want, "a.21")
		stop = running(t, &sinks.Drain{Sink: sink, Queue: q, MaxBatch: 2, Logger: toTest(t), Parked: store})
		time.Sleep(time.Minute)
		_ = stop()
		if diff := cmp.Diff(want, sequences(sink.broker)["a"]); diff != "" || !store.Empty() {
			t.Errorf("parked: %+v (-want +got):\n%s", store.Queues(), diff)
		}
	})
}

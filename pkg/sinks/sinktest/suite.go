package sinktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// patience is the timeout of every wait in the suite.
const patience = 3 * time.Minute

// Run runs the suite against the kind of destination that h describes. Every test is a subtest with a new destination.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tests := []struct {
		name    string
		run     func(t *testing.T, h Harness, d Destination)
		content bool // depends on the content of messages
	}{
		{"Delivery", testDelivery, true},
		{"OrderPerObject", testOrderPerObject, true},
		{"ControlEvent", testControlEvent, true},
		{"DuplicateKeepsID", testDuplicateKeepsID, true},
		{"Oversize", testOversize, true},
		{"EmptyBatch", testEmptyBatch, false},
		{"AwayAtStart", testAwayAtStart, false},
		{"NoticedAtOnce", testNoticedAtOnce, false},
		{"MissingPart", testMissingPart, false},
		{"ControlEventsApart", testControlEventsApart, true},
		{"MissingControlPlace", testMissingControlPlace, true},
		{"ProgressEverywhere", testProgressEverywhere, true},
		{"ProgressApart", testProgressApart, true},
		{"RestartUnderLoad", testRestartUnderLoad, false},
		{"StoppedBetweenSends", testStoppedBetweenSends, false},
		{"CancelHangingSend", testCancelHangingSend, false},
		{"CancelHangingConnect", testCancelHangingConnect, false},
		{"ShutdownDrains", testShutdownDrains, false},
		{"ShutdownWhileHanging", testShutdownWhileHanging, false},
		{"Destination", testDestination, false},
		{"ClusterNames", testClusterNames, false},
		{"ClusterNamesAtOnce", testClusterNamesAtOnce, false},
		{"StateElsewhere", testStateElsewhere, false},
		{"ForeignNameWritesNothing", testForeignNameWritesNothing, true},
	}
	for _, test := range tests {
		if h.OnlyContent && !test.content {
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.run(t, h, h.New(t)) })
	}
}

// connected returns a connected sink. The sink is closed at the end of the test. If the machine stands still, an
// attempt may take longer than its timeout.
func connected(t *testing.T, d Destination) sinks.Sink {
	t.Helper()
	sink := newSink(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for round := 1; ; round++ {
		err := sink.Connect(ctx)
		if err == nil {
			return sink
		}
		if round == rounds {
			t.Fatalf("Connect: %v", err)
		}
		t.Logf("Connect: %v", err)
	}
}

func newSink(t *testing.T, d Destination) sinks.Sink {
	t.Helper()
	sink := d.NewSink(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := sink.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return sink
}

// send sends batch and returns the results. Send gets a context that ends after patience.
func send(t *testing.T, sink sinks.Sink, batch []*event.Message) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results := make([]error, len(batch))
	sink.Send(ctx, batch, results)
	return results
}

// sendAll sends batch. Like a drain, it sends again what a broker did not take yet: a busy broker may still be loading
// when it answers first.
func sendAll(t *testing.T, sink sinks.Sink, batch []*event.Message) {
	t.Helper()
	await(t, "delivery", func() bool {
		var rest []*event.Message
		for i, err := range send(t, sink, batch) {
			switch {
			case err == nil, errors.Is(err, sinks.ErrStored):
			case sinks.IsPermanent(err):
				t.Fatalf("message %d of %d (%s): %v", i, len(batch), batch[i].ID, err)
			default:
				if len(rest) == 0 {
					t.Logf("message %d of %d (%s): %v", i, len(batch), batch[i].ID, err)
				}
				rest = append(rest, batch[i])
			}
		}
		batch = rest
		return len(rest) == 0
	})
}

func testDelivery(t *testing.T, _ Harness, d Destination) {
	sink := connected(t, d)
	var sent []*event.Message
	for round := range 4 { // several batches with a few hundred objects each
		var batch []*event.Message
		for i := range 300 {
			batch = append(batch, Message(fmt.Sprintf("o%d", i), round+1, 100+17*i))
		}
		sendAll(t, sink, batch)
		sent = append(sent, batch...)
	}
	odd := Message(`system:odd name/with"quotes%and.dots-ü`, 1, 100)
	odd.Type, odd.InitialList, odd.FinalStateUnknown = event.Deleted, true, true
	sendAll(t, sink, []*event.Message{odd})
	expect(t, d.Records(t), append(sent, odd), false)
}

func testOrderPerObject(t *testing.T, _ Harness, d Destination) {
	sink := connected(t, d)
	few, one := Messages(3, 200), make([]*event.Message, 0, 100)
	for v := range 100 {
		one = append(one, Message("single", v+1, 50))
	}
	sendAll(t, sink, few)
	sendAll(t, sink, one)
	expect(t, d.Records(t), append(few, one...), false)
}

func testControlEvent(t *testing.T, _ Harness, d Destination) {
	sink := connected(t, d)
	sent := []*event.Message{Gap()}
	sendAll(t, sink, sent)
	expect(t, d.Records(t), sent, false)
}

// testDuplicateKeepsID tests that a message that is sent twice, as after an unclear failure, is stored once or twice,
// but always with the same id.
func testDuplicateKeepsID(t *testing.T, _ Harness, d Destination) {
	sink := connected(t, d)
	sent := Messages(20, 1)
	sendAll(t, sink, sent)
	sendAll(t, sink, sent)
	records := d.Records(t)
	if n := len(records); n != len(sent) && n != 2*len(sent) {
		t.Errorf("%d records of %d messages sent twice", n, len(sent))
	}
	expect(t, records, sent, true)
}

// testOversize tests that a too large event is rejected. The later events of its object must wait, because a
// replacement may have to be sent first. The events of other objects must not wait.
func testOversize(t *testing.T, h Harness, d Destination) {
	if h.Oversize == 0 {
		t.Skip("the destination takes events of any size")
	}
	sink := connected(t, d)
	batch := []*event.Message{
		Message("a", 1, 100), Message("a", 2, h.Oversize), Message("a", 3, 100), Message("b", 1, 100),
	}
	results := send(t, sink, batch)
	for i, want := range []error{nil, sinks.ErrOversize, sinks.ErrNotAttempted, nil} {
		if !errors.Is(results[i], want) {
			t.Errorf("%s: %v, want %v", batch[i].ID, results[i], want)
		}
	}
	if err := results[1]; !sinks.IsPermanent(err) || !errors.Is(err, sinks.ErrOversize) {
		t.Errorf("oversize event: %v, want a permanent ErrOversize", err)
	}
	expect(t, d.Records(t), []*event.Message{batch[0], batch[3]}, false)
	sendAll(t, sink, []*event.Message{Message("a", 4, 100)}) // the connection still works
}

func testEmptyBatch(t *testing.T, _ Harness, d Destination) {
	sink := connected(t, d)
	send(t, sink, nil)
	expect(t, d.Records(t), nil, false)
}

// running is a Drain that is running.
type running struct {
	*sinks.Drain
	queue *fifo.Queue[*event.Message]
	stop  context.CancelFunc
	done  chan error
}

// drain starts a Drain for a new sink. It ends when finish is called or at the end of the test. The functions in edit
// change the Drain before it starts.
func drain(t *testing.T, d Destination, edit ...func(*sinks.Drain)) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	q := Queue(t, 100_000)
	r := &running{
		Drain: &sinks.Drain{
			Sink: newSink(t, d), Queue: q, MaxBatch: 256, Parked: OpenParked(t, t.TempDir()),
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		queue: q, stop: cancel, done: make(chan error, 1),
	}
	for _, change := range edit {
		change(r.Drain)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.done <- r.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	return r
}

// push adds messages to the queue. It fails the test if the drain does not make room in time.
func (r *running) push(t *testing.T, ms []*event.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, m := range ms {
		if err := r.queue.Push(ctx, m); err != nil {
			t.Fatalf("push of %s: %v; the drain's status: %s", m.ID, err, r.Status())
		}
	}
}

// awaitDelivery waits until the destination has everything. A server that has just started may not have all its parts:
// their events are parked for a moment.
func (r *running) awaitDelivery(t *testing.T) {
	t.Helper()
	await(t, "all events at the broker", func() bool { return r.queue.Stats().Items == 0 && r.Parked.Empty() })
}

// finish closes the queue and waits until all messages are delivered or parked.
func (r *running) finish(t *testing.T) {
	t.Helper()
	r.queue.Close()
	select {
	case err := <-r.done:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(patience):
		t.Fatalf("not drained after %s: %+v; status: %s", patience, r.queue.Stats(), r.Status())
	}
}

// await polls until ok returns true. Real brokers offer no other way to wait for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not after %s: %s", patience, what)
		}
	}
}

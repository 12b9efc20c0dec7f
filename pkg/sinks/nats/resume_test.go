package nats_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// installation is what outlives the processes of a bridge.
type installation struct {
	*broker

	writer    string
	positions sinks.Positions
}

func install(b *broker) *installation {
	return &installation{broker: b, writer: "i1/live", positions: sinks.Positions{}}
}

// process returns the sink of a new process, which is not connected. The earlier ones are not closed, as if they were
// killed or hung.
func (in *installation) process(t testing.TB) *nats.Sink {
	t.Helper()
	sink := in.NewSink(t).(*nats.Sink)
	t.Cleanup(func() { closeSink(t, sink) })
	sink.Resume(sinks.Resume{
		Writer: in.writer, Positions: maps.Clone(in.positions),
		Store: func(p sinks.Positions) error { maps.Copy(in.positions, p); return nil },
	})
	return sink
}

// start returns the connected sink of a new process.
func (in *installation) start(t testing.TB) *nats.Sink {
	t.Helper()
	sink := in.process(t)
	mustConnect(t, sink)
	return sink
}

// commit stores the positions of a sink.
func (in *installation) commit(sink *nats.Sink) { maps.Copy(in.positions, sink.Positions(nil)) }

// next is the only stored position.
func (in *installation) next(t testing.TB) int64 {
	t.Helper()
	if len(in.positions) != 1 {
		t.Fatalf("positions %+v", in.positions)
	}
	for _, p := range in.positions {
		return p.Next
	}
	return 0
}

// expectStored sends a batch. It expects the destination to have exactly the messages for which stored contains 1.
func expectStored(t testing.TB, sink *nats.Sink, stored string, batch ...*event.Message) {
	t.Helper()
	got := ""
	for i, err := range settle(t, sink, batch...) {
		switch {
		case err == nil:
			got += "0"
		case errors.Is(err, sinks.ErrStored):
			got += "1"
		default:
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if got != stored {
		t.Errorf("the destination had %s, want %s", got, stored)
	}
}

// outlastWindow waits until the stream has forgotten the ids of all messages that it has. Two of its messages remain.
func outlastWindow(t testing.TB, b *broker) {
	t.Helper()
	js, id := b.js(t), "probe."+time.Now().String()
	for n := 0; ; n++ {
		ack, err := js.Publish(t.Context(), "k8s.observer", nil, jetstream.WithMsgID(id))
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && !ack.Duplicate {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

func shortWindow(c *nats.Config) { c.Stream.DuplicateWindow = 100 * time.Millisecond }

// copyOf is m with changes.
func copyOf(m *event.Message, edit func(m *event.Message)) *event.Message {
	c := *m
	edit(&c)
	return &c
}

func repeated(m *event.Message, delivery string) *event.Message {
	return copyOf(m, func(m *event.Message) { m.Delivery = delivery })
}

// A process that is killed leaves messages behind its stored position, and one message in the middle that it could not
// send. The next process sends only this message and new messages, long after the stream has forgotten the ids.
func TestNothingTwice(t *testing.T) {
	for _, structured := range []bool{false, true} {
		in := install(newBroker(t))
		in.edit = shortWindow
		m := func(name string, v int) *event.Message {
			m := sinktest.Message(name, v, 100)
			m.Structured = structured
			return m
		}
		before := in.start(t)
		send(t, before, m("a", 1), m("b", 1))
		in.commit(before)
		again := repeated(restated("b", 2), "d1")
		left := copyOf(m("c", 4), func(m *event.Message) {
			m.Type, m.LeftFilter, m.ID = event.Deleted, true, m.ID+".left"
		})
		send(t, before, m("a", 2), m("a", 3), m("b", 2), again, deletion("d", 2), left, sinktest.Gap())
		outlastWindow(t, in.broker)

		after := in.start(t)
		expectStored(t, after, "11111011111",
			m("a", 2), m("a", 3), m("b", 2), again, deletion("d", 2), m("e", 1), left, sinktest.Gap(),
			m("c", 2), m("c", 3), m("d", 1))
		expectStored(t, after, "00000", m("a", 4), m("b", 3), repeated(restated("b", 3), "d2"), m("c", 5), m("e", 2))
		want := []string{
			"uid-a.1001", "uid-b.1001", "uid-a.1002", "uid-a.1003", "uid-b.1002", "uid-b.1002", "uid-d.deleted",
			"uid-c.1004.left", sinktest.Gap().ID, "uid-e.1001",
			"uid-a.1004", "uid-b.1003", "uid-b.1003", "uid-c.1005", "uid-e.1002",
		}
		var got []string
		for _, message := range in.messages(t) {
			if id := message.Headers().Get("ce-id"); id != "" {
				got = append(got, id)
				if mark := message.Headers().Get("deltabridge"); !strings.HasPrefix(mark, in.writer) {
					t.Errorf("%s is marked %q", id, mark)
				}
			}
		}
		slices.Sort(got) // messages of different objects have no order
		slices.Sort(want)
		if diff := cmpDiff(want, got); diff != "" {
			t.Errorf("structured %v (-want +got):\n%s", structured, diff)
		}
	}
}

// Only messages of the same sink of the same installation count, and none that were there before the first contact.
func TestOthersWriteToTheStream(t *testing.T) {
	in := install(newBroker(t))
	in.edit = shortWindow
	other := install(in.broker)
	other.writer = "i1/live2"
	plain := connect(t, in.broker)
	send(t, plain, sinktest.Message("a", 1, 100))
	first := in.start(t)
	if next := in.next(t); next != 2 {
		t.Errorf("position %d before the first message", next)
	}
	send(t, other.start(t), sinktest.Message("b", 1, 100))
	send(t, first, sinktest.Message("c", 1, 100))
	js := in.js(t)
	for range 1000 {
		if _, err := js.PublishAsync("k8s.of.others", nil); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	outlastWindow(t, in.broker)
	expectStored(t, in.start(t), "001", sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100),
		sinktest.Message("c", 1, 100))
}

// What is stored as the position, and where the next process reads.
func TestPositions(t *testing.T) {
	a := func(v int) *event.Message { return sinktest.Message("a", v, 100) }
	admin := func(t *testing.T, in *installation) jetstream.Stream {
		t.Helper()
		stream, err := in.js(t).Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	for name, c := range map[string]struct {
		between func(t *testing.T, in *installation)
		stored  string // of a1, a2, a3
		next    int64
	}{
		"nothing happens": {func(*testing.T, *installation) {}, "111", 2},
		"the tail is purged": {func(t *testing.T, in *installation) {
			if err := admin(t, in).Purge(t.Context()); err != nil {
				t.Error(err)
			}
		}, "000", 2},
		"a part of the tail is purged": {func(t *testing.T, in *installation) {
			if err := admin(t, in).Purge(t.Context(), jetstream.WithPurgeSequence(3)); err != nil {
				t.Error(err)
			}
		}, "111", 2},
		"the last message is deleted": {func(t *testing.T, in *installation) {
			if err := admin(t, in).DeleteMsg(t.Context(), 3); err != nil {
				t.Error(err)
			}
		}, "110", 2},
		"the stream is created again": {func(t *testing.T, in *installation) {
			if err := in.js(t).DeleteStream(t.Context(), streamName); err != nil {
				t.Error(err)
			}
		}, "000", 1},
		"the stream has lost messages": {func(_ *testing.T, in *installation) {
			for part := range in.positions {
				in.positions[part] = sinks.Position{Next: 700}
			}
		}, "000", 4},
	} {
		t.Run(name, func(t *testing.T) {
			in := install(newBroker(t))
			in.edit = shortWindow
			first := in.start(t)
			send(t, first, a(1))
			in.commit(first)
			if in.next(t) != 2 {
				t.Errorf("position %d", in.next(t))
			}
			send(t, first, a(2), a(3))
			outlastWindowOf(t, in)
			c.between(t, in)
			old := maps.Clone(in.positions)
			second := in.start(t)
			if len(in.positions) > 1 {
				maps.DeleteFunc(in.positions, func(part string, _ sinks.Position) bool { return old[part].Next > 0 })
			}
			if in.next(t) != c.next {
				t.Errorf("the next process begins at %d, want %d", in.next(t), c.next)
			}
			expectStored(t, second, c.stored, a(1), a(2), a(3))
			expectStored(t, second, "0", a(4))
			in.commit(second)
			third := in.start(t)
			expectStored(t, third, "0", a(5))
		})
	}
}

// outlastWindowOf is outlastWindow, but the stream has no more messages afterwards.
func outlastWindowOf(t *testing.T, in *installation) {
	t.Helper()
	config := jetstream.StreamConfig{
		Name: "OTHER", Subjects: []string{"other"}, Duplicates: 200 * time.Millisecond,
	}
	js := in.js(t)
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		ack, err := js.Publish(t.Context(), "other", nil, jetstream.WithMsgID("x"))
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && !ack.Duplicate {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

// The position stays before a message that was perhaps written, until a later attempt settles it.
func TestDoubt(t *testing.T) {
	in := install(newBroker(t))
	in.edit = func(c *nats.Config) { c.AckTimeout = 200 * time.Millisecond }
	sink := in.start(t)
	send(t, sink, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	in.Freeze()
	if err := try(t, sink, sinktest.Message("a", 2, 100))[0]; !sinks.IsMaybeWritten(err) {
		t.Fatalf("no answer: %v", err)
	}
	in.Thaw()
	send(t, sink, sinktest.Message("b", 2, 100))
	in.commit(sink)
	if next := in.next(t); next != 3 {
		t.Errorf("position %d with a message in doubt", next)
	}
	expectStored(t, sink, "1", sinktest.Message("a", 2, 100))
	in.commit(sink)
	if next := in.next(t); next != 5 {
		t.Errorf("position %d", next)
	}
	send(t, sink, sinktest.Message("a", 3, 100))
	in.commit(sink)
	if next := in.next(t); next != 6 {
		t.Errorf("position %d", next)
	}
}

// An outage outlasts the duplicate window. What was written before it without an acknowledgement is not written again.
func TestDoubtOutlastsTheWindow(t *testing.T) {
	in := install(newBroker(t))
	in.edit = func(c *nats.Config) { shortWindow(c); c.AckTimeout = 200 * time.Millisecond }
	sink := in.start(t)
	gap := sinktest.Gap()
	gap.Origin.Left = true // an earlier process has left it on disk, so it can come again
	send(t, sink, sinktest.Message("a", 1, 100), gap)
	conn := in.js(t).Conn()
	stored, err := conn.SubscribeSync("k8s.>")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Freeze()
	batch := []*event.Message{sinktest.Message("a", 2, 100), sinktest.Message("b", 1, 100)}
	for _, err := range try(t, sink, batch...) {
		if !sinks.IsMaybeWritten(err) {
			t.Fatal(err)
		}
	}
	in.Thaw()
	for range batch {
		if _, err := stored.NextMsg(2 * time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	outlastWindow(t, in.broker)
	expectStored(t, sink, "11", batch...)
	expectStored(t, sink, "001", sinktest.Message("a", 3, 100), sinktest.Message("b", 2, 100), gap)
	in.commit(sink)
	if next := in.next(t); next != 9 {
		t.Errorf("position %d", next)
	}
}

// The stream is created again between two messages of a sink that is never idle. The sink notices it with the next
// acknowledgement.
func TestCreatedAgainUnderLoad(t *testing.T) {
	for _, latest := range []bool{false, true} {
		in := install(newBroker(t))
		in.edit = func(c *nats.Config) { c.Stream.LastPerSubject = latest }
		sink := in.start(t)
		send(t, sink, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
		before, js, config := sink.Destination(), in.js(t), in.stream(t).CachedInfo().Config
		if err := js.DeleteStream(t.Context(), streamName); err != nil {
			t.Fatal(err)
		}
		natsserver.CreateStream(t, js, config)
		send(t, sink, sinktest.Message("a", 2, 100))
		send(t, sink, sinktest.Message("a", 3, 100))
		if sink.Destination() == before {
			t.Errorf("latest %v: the sink has not noticed the new stream", latest)
		}
		expectWritten(t, in.broker, 2)
		in.commit(sink)
		maps.DeleteFunc(in.positions, func(part string, _ sinks.Position) bool { return part == before })
		if next := in.next(t); next != 3 {
			t.Errorf("latest %v: position %d in the new stream", latest, next)
		}
	}
}

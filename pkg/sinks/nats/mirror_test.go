package nats_test

import (
	"cmp"
	"errors"
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

// installMirror returns an installation whose stream keeps the last message of each subject.
func installMirror(t *testing.T) *installation {
	in := install(newBroker(t))
	in.edit = asMirror(time.Hour)
	return in
}

// mirrors runs a test with a stream that keeps the last message of each subject, and with a bucket.
func mirrors(t *testing.T, test func(t *testing.T, in *installation)) {
	t.Helper()
	t.Run("stream", func(t *testing.T) { test(t, installMirror(t)) })
	t.Run("bucket", func(t *testing.T) {
		in := installMirror(t)
		in.name = "KV_STATE"
		in.edit = func(c *nats.Config) {
			c.Stream.Name, c.Stream.Subjects, c.Bucket, c.Stream.DeletionsKeptFor = "", nil, "STATE", time.Hour
			c.Subject = "{group}.{resource}.{namespace}.{name}"
		}
		test(t, in)
	})
}

// stream returns the stream as an administrator sees it. It waits for the stream's leader.
func (b *broker) stream(t testing.TB) jetstream.Stream {
	t.Helper()
	return natsserver.Stream(t, b.js(t), cmp.Or(b.name, streamName))
}

// expectWritten fails the test if another number of messages was ever stored.
func expectWritten(t testing.TB, b *broker, want uint64) {
	t.Helper()
	if got := b.stream(t).CachedInfo().State.LastSeq; got != want {
		t.Errorf("%d messages were stored, want %d", got, want)
	}
}

// countLookUps returns a function that returns how many messages were looked up until then.
func (b *broker) countLookUps(t testing.TB) func() int {
	t.Helper()
	conn := b.js(t).Conn()
	sub, err := conn.SubscribeSync("$JS.API.STREAM.MSG.GET.>")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		n, _, err := sub.Pending()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// The sink of a process that was believed dead writes at the same time as its successor. Whatever it does, the last
// message of each object is that of its newest state, and no state is stored twice.
func TestMirrorZombie(t *testing.T) {
	for _, structured := range []bool{false, true} {
		mirrors(t, func(t *testing.T, in *installation) { testMirrorZombie(t, in, structured) })
	}
}

func testMirrorZombie(t *testing.T, in *installation, structured bool) {
	m := func(name string, v int) *event.Message {
		m := sinktest.Message(name, v, 100)
		m.Structured = structured
		return m
	}
	zombie := in.start(t)
	send(t, zombie, m("a", 1), m("b", 1), m("c", 1))
	in.commit(zombie)
	successor := in.start(t)
	send(t, successor, m("a", 9), m("b", 9), deletion("c", 9), m("d", 9))

	recreated := copyOf(m("b", 5), func(m *event.Message) {
		m.Identity.UID, m.ID = "uid-old", "uid-old.1005"
	})
	unknown := copyOf(deletion("b", 5), func(m *event.Message) {
		m.Identity.UID, m.ID, m.FinalStateUnknown = "uid-old", "uid-old.deleted", true
	})
	left := copyOf(recreated, func(m *event.Message) {
		m.Type, m.LeftFilter, m.Epoch, m.ID = event.Deleted, true, "old", "uid-old.1005.left"
	})
	expectStored(t, zombie, "1111", m("a", 2), m("c", 2), m("d", 2), recreated)
	expectStored(t, zombie, "111111", m("a", 3), m("a", 4), unknown, left, repeated(restated("a", 5), "d1"),
		repeated(restated("c", 5), "d2"))
	expectWritten(t, in.broker, 7)
	// Both go on. Who is ahead writes, and the other one follows.
	expectStored(t, successor, "0", m("a", 10))
	expectStored(t, zombie, "1110", m("a", 9), m("a", 10), repeated(restated("a", 9), "d3"), m("a", 11))
	expectStored(t, successor, "1", m("a", 11))
	expectStored(t, successor, "00", m("a", 12), m("b", 10))
	expectWritten(t, in.broker, 11)
	expectLogSorted(t, in.broker, "uid-a.1012", "uid-b.1010", "uid-c.deleted", "uid-d.1009")
}

// The process that was believed dead has another filter than its successor. What it writes replaces nothing of the
// successor that is as new.
func TestMirrorZombieWithAnotherFilter(t *testing.T) {
	in := installMirror(t)
	from := func(epoch string, m *event.Message) *event.Message {
		return copyOf(m, func(m *event.Message) { m.Epoch = epoch })
	}
	left := func(name string, v int) *event.Message {
		return copyOf(sinktest.Message(name, v, 100), func(m *event.Message) {
			m.Type, m.LeftFilter, m.ID = event.Deleted, true, m.ID+".left"
		})
	}
	zombie := in.start(t)
	send(t, zombie, from("e1", sinktest.Message("a", 1, 100)), from("e1", sinktest.Message("b", 1, 100)))
	in.commit(zombie)
	successor := in.start(t)
	send(t, successor, from("e2", sinktest.Message("a", 9, 100)), from("e2", left("b", 5)))
	expectStored(t, zombie, "111", from("e1", left("a", 5)), from("e1", left("a", 9)),
		from("e1", sinktest.Message("b", 5, 100)))
	expectHeld(t, in.broker, "deleted uid-b.1005.left", "updated uid-a.1009")
}

func expectLogSorted(t testing.TB, b *broker, want ...string) {
	t.Helper()
	got := map[string]bool{}
	for _, m := range b.messages(t) {
		got[m.Headers().Get("ce-id")] = true
	}
	expected := map[string]bool{}
	for _, id := range want {
		expected[id] = true
	}
	if diff := cmpDiff(expected, got); diff != "" {
		t.Errorf("the stream (-want +got):\n%s", diff)
	}
}

// After a restart, what the previous process wrote is not written again, and the rest is.
func TestMirrorNothingTwice(t *testing.T) {
	in := installMirror(t)
	m := func(name string, v int) *event.Message { return sinktest.Message(name, v, 100) }
	before := in.start(t)
	send(t, before, m("a", 1), m("b", 1), m("c", 1))
	in.commit(before)
	again := repeated(restated("d", 1), "d1")
	send(t, before, m("a", 2), m("a", 3), deletion("b", 2), m("b", 3), again, sinktest.Gap())
	lookedUp := in.countLookUps(t)
	after := in.start(t)
	expectStored(t, after, "11111011",
		m("a", 2), m("a", 3), deletion("b", 2), m("b", 3), again, m("c", 2), m("d", 1), sinktest.Gap())
	expectStored(t, after, "00000",
		m("a", 4), m("b", 4), repeated(restated("d", 1), "d2"), m("c", 3),
		copyOf(sinktest.Gap(), func(m *event.Message) { m.ID += ".2" }))
	if n := lookedUp(); n != 0 {
		t.Errorf("%d messages were looked up", n)
	}
	expectWritten(t, in.broker, 15)
	for _, m := range in.messages(t) {
		h := m.Headers()
		if h.Get("Nats-Msg-Id") != "" || h.Get("Nats-Expected-Last-Subject-Sequence") == "" {
			t.Errorf("headers of %s: %v", m.Subject(), h)
		}
	}
}

// A message of the subject was removed in one way or another. The next one is stored.
func TestMirrorAfterARemoval(t *testing.T) {
	expires := func(c *jetstream.StreamConfig) { c.MaxAge = 300 * time.Millisecond }
	for name, c := range map[string]struct {
		edit   func(*jetstream.StreamConfig)
		remove func(t *testing.T, in *installation) error
	}{
		"purge": {nil, func(t *testing.T, in *installation) error {
			return in.stream(t).Purge(t.Context())
		}},
		"purge of the subject": {nil, func(t *testing.T, in *installation) error {
			return in.stream(t).Purge(t.Context(), jetstream.WithPurgeSubject(in.messages(t)[0].Subject()))
		}},
		"deletion": {nil, func(t *testing.T, in *installation) error {
			return in.stream(t).DeleteMsg(t.Context(), 1)
		}},
		"expiry": {expires, awaitExpiry},
		"expiry with a marker": {func(c *jetstream.StreamConfig) {
			expires(c)
			c.AllowMsgTTL, c.SubjectDeleteMarkerTTL, c.AllowRollup = true, time.Hour, true
		}, awaitExpiry},
		"the message of somebody else": {nil, func(t *testing.T, in *installation) error {
			_, err := in.js(t).Publish(t.Context(), in.messages(t)[0].Subject(), []byte("hello"))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			mirrors(t, func(t *testing.T, in *installation) {
				config := jetstream.StreamConfig{
					Name: cmp.Or(in.name, streamName), Subjects: []string{"k8s.>", "$KV.STATE.>"}, MaxMsgsPerSubject: 1,
					Storage: jetstream.MemoryStorage, Duplicates: 100 * time.Millisecond,
				}
				if c.edit != nil {
					c.edit(&config)
				}
				if _, err := in.js(t).CreateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
				sink := in.start(t)
				send(t, sink, sinktest.Message("a", 1, 100))
				if err := c.remove(t, in); err != nil {
					t.Error(err)
				}
				expectStored(t, sink, "0", sinktest.Message("a", 2, 100))
				expectStored(t, sink, "0", sinktest.Message("a", 3, 100))
			})
		})
	}
}

// awaitExpiry waits until the stream no longer has its first message.
func awaitExpiry(t *testing.T, in *installation) error {
	t.Helper()
	stream, deadline := in.stream(t), time.After(2*time.Minute)
	for {
		if _, err := stream.GetMsg(t.Context(), 1); errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		select {
		case <-deadline:
			return errors.New("the message does not expire")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// After etcd was restored, lower versions are newer.
func TestMirrorAfterARestoredEtcd(t *testing.T) {
	mirrors(t, func(t *testing.T, in *installation) {
		before := in.start(t)
		send(t, before, sinktest.Message("a", 9, 100))
		restoredState := copyOf(sinktest.Message("a", 5, 100), func(m *event.Message) { m.History = "1004" })
		after := in.start(t)
		expectStored(t, after, "10", sinktest.Message("a", 5, 100), restoredState)
		expectStored(t, in.start(t), "1", restoredState)
		expectWritten(t, in.broker, 2)
	})
}

// An attempt that was not answered is repeated, and was stored or not. It is stored once.
func TestMirrorInDoubt(t *testing.T) {
	in := installMirror(t)
	edit := in.edit
	in.edit = func(c *nats.Config) { edit(c); c.AckTimeout = 200 * time.Millisecond }
	sink := in.start(t)
	send(t, sink, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	for v := 2; v < 7; v++ {
		in.Freeze()
		for i, err := range try(t, sink, sinktest.Message("a", v, 100), sinktest.Message("b", v, 100)) {
			if !sinks.IsMaybeWritten(err) {
				t.Fatalf("message %d without an answer: %v", i, err)
			}
		}
		if v%2 == 0 {
			in.Cut() // the messages are lost, or have been stored
		}
		in.Thaw()
		for _, m := range []*event.Message{sinktest.Message("a", v, 100), sinktest.Message("b", v, 100)} {
			for err := errors.New("not sent"); err != nil && !errors.Is(err, sinks.ErrStored); {
				err = try(t, sink, m)[0]
			}
		}
		expectWritten(t, in.broker, uint64(2*v))
	}
	expectLogSorted(t, in.broker, "uid-a.1006", "uid-b.1006")
}

// A sink that comes to a filled stream for the first time reads it once. Messages of others are replaced.
func TestMirrorFilledStream(t *testing.T) {
	for _, writer := range []string{"i1/live", "i2/live"} {
		in := installMirror(t)
		connect(t, in.broker) // creates the stream
		const objects = 3000
		publishRaw(t, in, objects, 1)
		lookedUp := in.countLookUps(t)
		in.writer = writer
		sink := in.start(t)
		stored := strings.Repeat(map[string]string{"i1/live": "1", "i2/live": "0"}[writer], objects)
		expectStored(t, sink, stored, sinktest.Messages(objects, 1)...)
		if n := lookedUp(); n != 0 {
			t.Errorf("%s: %d messages were looked up", writer, n)
		}
		send(t, sink, sinktest.Messages(objects, 2)[objects:]...)
	}
}

// A leave that is sent only if the object is there, of an object that the sink knows, or not. The stream is asked if it
// could not be read back.
func TestMirrorIfFound(t *testing.T) {
	for _, permission := range []string{"$JS.API.CONSUMER.>", "unused"} {
		b := secured(t, limited("k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S",
			"$JS.API.STREAM.MSG.GET.K8S", permission))
		b.edit = func(cfg *nats.Config) { asBridge(t, cfg); asMirror(time.Hour)(cfg) }
		in := install(b)
		before := in.start(t)
		send(t, before, sinktest.Message("old", 1, 100))
		in.commit(before)
		send(t, before, sinktest.Message("a", 1, 100), deletion("b", 1))
		leave := func(name string) *event.Message {
			return copyOf(sinktest.Message(name, 1, 100), func(m *event.Message) {
				m.Type, m.LeftFilter, m.IfFound, m.ID = event.Deleted, true, true, m.ID+".left.filter.x"
			})
		}
		expectStored(t, in.start(t), "0111", leave("a"), leave("b"), leave("c"), leave("old"))
		expectHeld(t, b, "deleted uid-a.1001.left.filter.x", "deleted uid-b.deleted", "updated uid-old.1001")
	}
}

// A bucket keeps the last state of each object too, in a domain too.
func TestBucketZombie(t *testing.T) {
	hub, leaf := leafNode(t, limited(">"))
	hub.edit = func(cfg *nats.Config) {
		asBridge(t, cfg)
		cfg.URLs, cfg.Domain, cfg.Bucket = []string{"nats://" + leaf.Addr()}, "hub", "STATE"
		cfg.Stream, cfg.Subject = nats.StreamConfig{Create: true}, "{group}.{resource}.{namespace}.{name}"
	}
	in := install(hub)
	zombie := in.start(t)
	send(t, zombie, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	successor := in.start(t)
	expectStored(t, successor, "100", sinktest.Message("a", 1, 100), sinktest.Message("a", 2, 100), deletion("b", 2))
	expectStored(t, zombie, "110", sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100),
		sinktest.Message("b:c", 3, 100))
	bucket, err := hub.js(t).KeyValue(t.Context(), "STATE")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := bucket.Get(t.Context(), "apps_example_com.things.default.a")
	if err != nil || string(entry.Value()) != string(sinktest.Message("a", 2, 100).Data) {
		t.Errorf("%+v, %v", entry, err)
	}
	if err := bucket.Purge(t.Context(), "apps_example_com.things.default.a"); err != nil {
		t.Error(err)
	}
	expectStored(t, successor, "0", sinktest.Message("a", 3, 100))
}

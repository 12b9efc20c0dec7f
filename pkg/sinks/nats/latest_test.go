package nats_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// asMirror makes the sinks of a broker keep last messages alone.
func asMirror(deletionsKeptFor time.Duration) func(*nats.Config) {
	return func(c *nats.Config) {
		c.Stream.LastPerSubject, c.Stream.DeletionsKeptFor = true, deletionsKeptFor
	}
}

func deletion(name string, v int) *event.Message {
	m := sinktest.Message(name, v, 100)
	m.Type, m.ID = event.Deleted, string(m.Identity.UID)+".deleted"
	return m
}

func restated(name string, v int) *event.Message {
	m := sinktest.Message(name, v, 100)
	m.Type, m.Time = event.Restated, time.Now()
	return m
}

// held is what the stream holds, as "type id", sorted, without the prefix of the types.
func held(t *testing.T, b *broker) []string {
	t.Helper()
	var all []string
	for _, r := range b.Records(t) {
		all = append(all, path.Ext(r.Attributes["type"])[1:]+" "+r.Attributes["id"])
	}
	slices.Sort(all)
	return all
}

func expectHeld(t *testing.T, b *broker, want ...string) {
	t.Helper()
	if diff := cmpDiff(want, held(t, b)); diff != "" {
		t.Errorf("the stream (-want +got):\n%s", diff)
	}
}

// The stream holds the last state of each object, a deletion for a while, and what came after it.
func TestMirror(t *testing.T) {
	b := newBroker(t)
	b.edit = asMirror(time.Hour)
	sink := connect(t, b)
	stream, err := b.js(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if c := stream.CachedInfo().Config; c.MaxMsgsPerSubject != 1 || !c.AllowMsgTTL {
		t.Errorf("created as %+v", c)
	}
	send(
		t,
		sink,
		sinktest.Message("a", 1, 100),
		sinktest.Message("b", 1, 100),
		sinktest.Message("a", 2, 100),
		deletion("b", 2),
		sinktest.Message("c", 1, 100),
		deletion("c", 2),
		sinktest.Message("c", 3, 100),
	)
	expectHeld(t, b, "deleted uid-b.deleted", "updated uid-a.1002", "updated uid-c.1003")
	b.edit = asMirror(time.Second)
	send(t, connect(t, b), deletion("a", 3))
	deadline := time.After(2 * time.Minute)
	for messages := uint64(3); messages != 2; { // counted, not read: the deletion may vanish between the two
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		messages = info.State.Msgs
		select {
		case <-deadline:
			t.Fatalf("the deletion does not vanish: %d messages", messages)
		case <-time.After(100 * time.Millisecond):
		}
	}
	expectHeld(t, b, "deleted uid-b.deleted", "updated uid-c.1003")
}

// A restated event is stored although the stream has the event, and even if the stream has lost it. A restated event
// that is sent again is not stored twice.
func TestRestatement(t *testing.T) {
	b := newBroker(t)
	sink := connect(t, b)
	first := repeated(restated("a", 1), "d1")
	send(t, sink, sinktest.Message("a", 1, 100), first)
	send(t, sink, first)
	expectHeld(t, b, "restated uid-a.1001", "updated uid-a.1001")
	stream, err := b.js(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, sink, repeated(restated("a", 1), "d2"))
	expectHeld(t, b, "restated uid-a.1001")
}

// A stream that is there is used as a mirror only if it is one. Without TTLs deletions stay, and doctor says so.
func TestExistingMirror(t *testing.T) {
	for name, test := range map[string]struct {
		stream   jetstream.StreamConfig
		err      string
		findings []string // beside that it has one replica and that its storage is memory
	}{
		"a mirror": {stream: jetstream.StreamConfig{MaxMsgsPerSubject: 1, AllowMsgTTL: true, Duplicates: 5 * time.Minute}},
		"a short memory": {
			stream: jetstream.StreamConfig{MaxMsgsPerSubject: 1, AllowMsgTTL: true, Duplicates: time.Second},
		},
		"no TTLs": {
			stream:   jetstream.StreamConfig{MaxMsgsPerSubject: 1},
			findings: []string{"it keeps deletions forever, because it allows no TTL for single messages (allow_msg_ttl)"},
		},
		"an age": {
			stream:   jetstream.StreamConfig{MaxMsgsPerSubject: 1, AllowMsgTTL: true, MaxAge: time.Minute},
			findings: []string{"it removes objects that do not change for 1m0s (max_age)"},
		},
		"a log":     {stream: jetstream.StreamConfig{}, err: "its max_msgs_per_subject is -1, but nats.stream.lastPerSubject requires 1"},
		"a history": {stream: jetstream.StreamConfig{MaxMsgsPerSubject: 5}, err: "its max_msgs_per_subject is 5"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			b.Stop(t)
			b.opts.MaxPayload = 4 << 20
			b.Start(t)
			b.edit = asMirror(time.Hour)
			test.stream.Name, test.stream.Subjects, test.stream.Storage = streamName, []string{"k8s.>"}, jetstream.MemoryStorage
			if _, err := b.js(t).CreateStream(t.Context(), test.stream); err != nil {
				t.Fatal(err)
			}
			sink := b.NewSink(t).(*nats.Sink)
			defer closeSink(t, sink)
			err := sink.Connect(t.Context())
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("Connect: %v, want %q", err, test.err)
			}
			findings, failed := judged(t, b)
			if err != nil {
				if !strings.Contains(failed, test.err) {
					t.Errorf("Check: %s", failed)
				}
				return
			}
			if diff := cmpDiff(test.findings, findings); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
			send(t, sink, sinktest.Message("a", 1, 100), deletion("a", 2))
			expectHeld(t, b, "deleted uid-a.deleted")
		})
	}
}

// judged is what Check finds of the stream: the warnings, and the failure if there is one.
func judged(t *testing.T, b *broker) (warnings []string, failed string) {
	t.Helper()
	for _, f := range b.NewSink(t).(*nats.Sink).Check(t.Context()) {
		switch {
		case f.Err != nil:
			failed = f.Err.Error()
		case f.Warn && !strings.Contains(f.Detail, "one replica") && !strings.Contains(f.Detail, "storage is memory"):
			warnings = append(warnings, f.Detail)
		}
	}
	return warnings, failed
}

// If the stream no longer accepts TTLs while the bridge runs, they are left out from then on.
func TestMirrorLosesTTLs(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) {
		asMirror(time.Hour)(c)
		c.Stream.Storage = "memory"
	}
	sink := connect(t, b)
	js := b.js(t)
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(
		t.Context(),
		jetstream.StreamConfig{
			Name:              streamName,
			Subjects:          []string{"k8s.>"},
			MaxMsgsPerSubject: 1,
			Storage:           jetstream.MemoryStorage,
		},
	); err != nil {
		t.Fatal(err)
	}
	if err := try(t, sink, deletion("a", 1))[0]; err == nil || sinks.IsPermanent(err) {
		t.Errorf("with a TTL that the stream does not take: %v, want a plain error", err)
	}
	send(t, sink, deletion("a", 1))
	expectHeld(t, b, "deleted uid-a.deleted")
}

// In a bucket, key-value clients see the current state.
func TestBucket(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) {
		c.Stream.Name, c.Stream.Subjects, c.Bucket, c.Stream.DeletionsKeptFor = "", nil, "STATE", time.Hour
		c.Subject = "{group}.{resource}.{namespace}.{name}"
	}
	sink := connect(t, b)
	bucket, err := b.js(t).KeyValue(t.Context(), "STATE")
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := bucket.WatchAll(t.Context(), jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	send(
		t,
		sink,
		sinktest.Message("a", 1, 100),
		sinktest.Message("system:x.y", 1, 100),
		sinktest.Message("a", 2, 100),
		deletion("system:x.y", 2),
		sinktest.Message("b", 3, 100),
	)
	const prefix = "apps_example_com.things.default."
	seen := map[string]bool{} // what was replaced at once may be missing
	for !seen["KeyValuePutOp "+prefix+"a"] || !seen["KeyValuePutOp "+prefix+"b"] || !seen["KeyValueDeleteOp "+prefix+"system=3Ax=2Ey"] {
		select {
		case e := <-watcher.Updates():
			seen[e.Operation().String()+" "+e.Key()] = true
		case <-time.After(2 * time.Minute):
			t.Fatalf("after %v nothing comes", seen)
		}
	}
	if err := watcher.Stop(); err != nil {
		t.Error(err)
	}
	keys, err := bucket.Keys(t.Context())
	slices.Sort(keys)
	if diff := cmpDiff([]string{prefix + "a", prefix + "b"}, keys); diff != "" || err != nil {
		t.Errorf("keys, %v (-want +got):\n%s", err, diff)
	}
	entry, err := bucket.Get(t.Context(), prefix+"a")
	if err != nil || string(entry.Value()) != string(sinktest.Message("a", 2, 100).Data) {
		t.Errorf("get: %v, %v", entry, err)
	}
	if _, err := bucket.Get(t.Context(), prefix+"system=3Ax=2Ey"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("get what was deleted: %v", err)
	}
	status, err := bucket.Status(t.Context())
	if err != nil || status.History() != 1 {
		t.Errorf("%v, %v", status, err)
	}

	// One that was made by hand, with a history of its own.
	if _, err := b.js(t).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LONG", History: 5}); err != nil {
		t.Fatal(err)
	}
	edit := b.edit
	b.edit = func(c *nats.Config) {
		edit(c)
		c.Bucket, c.Subject = "LONG", "{uid}"
	}
	other := b.NewSink(t).(*nats.Sink)
	defer closeSink(t, other)
	if err := other.Connect(
		t.Context(),
	); err == nil ||
		!strings.Contains(
			err.Error(),
			"the bucket has a history of 5, but nats.bucket requires 1: run nats kv edit LONG --history=1",
		) {
		t.Errorf("a bucket with a history: %v", err)
	}
}

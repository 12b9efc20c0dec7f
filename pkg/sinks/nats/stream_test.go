package nats_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// An existing stream is not changed. Each problem of the stream is an error or a warning with a remedy.
func TestExistingStreamIsChecked(t *testing.T) {
	tests := map[string]struct {
		stream jetstream.StreamConfig
		err    string
		warns  []string
	}{
		"fit": {stream: jetstream.StreamConfig{Subjects: []string{"k8s.>"}, Duplicates: 5 * time.Minute}},
		"other subjects": {
			stream: jetstream.StreamConfig{Subjects: []string{"orders.>"}},
			err:    `its subjects ["orders.>"] include none of "k8s.*.*.*.*.*": add the subject to the stream`,
		},
		"no acknowledgements": {
			stream: jetstream.StreamConfig{Subjects: []string{"k8s.>"}, NoAck: true},
			err:    "turn no_ack off",
		},
		"part of the subjects": {
			stream: jetstream.StreamConfig{Subjects: []string{"k8s.test.>"}},
			warns:  []string{"include only a part of"},
		},
		"drops old messages": {
			stream: jetstream.StreamConfig{Subjects: []string{"k8s.>"}, MaxBytes: 1 << 20, MaxMsgsPerSubject: 3},
			warns: []string{
				"when full (max_bytes 1048576, max_msgs -1), it removes its oldest",
				"keeps only the last 3 messages",
			},
		},
		"full means wait": {
			stream: jetstream.StreamConfig{Subjects: []string{"k8s.>"}, MaxBytes: 1 << 20, Discard: jetstream.DiscardNew},
		},
		"short memory": {
			stream: jetstream.StreamConfig{
				Subjects:   []string{"k8s.>"},
				Duplicates: 5 * time.Second,
				Retention:  jetstream.InterestPolicy,
			},
			warns: []string{"its duplicate_window is only 5s", "its retention is interest"},
		},
		"small messages": {
			stream: jetstream.StreamConfig{Subjects: []string{"k8s.>"}, MaxMsgSize: 5000},
			warns:  []string{"accepts messages of at most 5000 bytes"},
		},
	}
	b := newBroker(t)
	b.Stop(t)
	b.opts.MaxPayload = 4 << 20 // so that only the stream's own limit is warned of
	b.Start(t)
	js := b.js(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.stream.Name = streamName
			// nats-server removes a deleted stream's files behind our back, and can fail to make new ones meanwhile.
			test.stream.Storage = jetstream.MemoryStorage
			before, err := js.CreateStream(t.Context(), test.stream)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), streamName) }()
			var log bytes.Buffer
			b.edit = func(c *nats.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
			sink := b.NewSink(t).(*nats.Sink)
			defer closeSink(t, sink)
			err = sink.Connect(t.Context())
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("Connect: %v, want %q", err, test.err)
			}
			if got := strings.Count(log.String(), "level=WARN"); got != len(test.warns) {
				t.Errorf("%d warnings, want %d:\n%s", got, len(test.warns), &log)
			}
			for _, want := range test.warns {
				if !strings.Contains(log.String(), want) {
					t.Errorf("no warning %q:\n%s", want, &log)
				}
			}
			after, err := js.Stream(t.Context(), streamName)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmpDiff(before.CachedInfo().Config, after.CachedInfo().Config); diff != "" {
				t.Errorf("the sink changed the stream (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMissingStream(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) { c.Stream.Create = false }
	sink := b.NewSink(t).(*nats.Sink)
	defer closeSink(t, sink)
	if err := sink.Connect(
		t.Context(),
	); err == nil ||
		!strings.Contains(
			err.Error(),
			"stream K8S does not exist; create it, correct nats.stream.name, or set nats.stream.create: true",
		) {
		t.Errorf("Connect: %v", err)
	}
	if _, err := b.js(t).
		CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}}); err != nil {
		t.Fatal(err)
	}
	if err := sink.Connect(t.Context()); err != nil {
		t.Errorf("Connect, with the stream there: %v", err)
	}
	send(t, sink, sinktest.Message("a", 1, 100))
}

func TestCreatedStream(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) {
		c.Stream = nats.StreamConfig{
			Name: streamName, Create: true, Discard: "new", Storage: "memory",
			MaxBytes: 1 << 20, MaxAge: time.Minute,
		}
	}
	connect(t, b)
	stream, err := b.js(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	if len(c.Subjects) != 1 || c.Subjects[0] != "k8s.*.*.*.*.*" || c.Discard != jetstream.DiscardNew ||
		c.Storage != jetstream.MemoryStorage ||
		c.MaxBytes != 1<<20 ||
		c.MaxAge != time.Minute ||
		c.Duplicates != time.Minute ||
		c.Replicas != 1 {
		t.Errorf("created as %+v", c)
	}
}

// A stream that is deleted under the sink is created again if that is configured; otherwise the sink says so, and
// goes on when it is back.
func TestStreamDeletedWhileRunning(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) { c.Stream.Storage = "memory" }
	sink := connect(t, b)
	js := b.js(t)
	send(t, sink, sinktest.Message("a", 1, 100))
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	err := try(t, sink, sinktest.Message("a", 2, 100))[0]
	if err == nil || sinks.IsPermanent(err) || sinks.IsMaybeWritten(err) ||
		!strings.Contains(err.Error(), "no stream has this subject") {
		t.Errorf("without the stream: %v, want a plain error", err)
	}
	send(t, sink, sinktest.Message("a", 2, 100))

	b.edit = func(c *nats.Config) { c.Stream.Create = false }
	careful := connect(t, b)
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	_ = try(t, careful, sinktest.Message("a", 3, 100))
	if err := try(t, careful, sinktest.Message("a", 3, 100))[0]; err == nil ||
		!strings.Contains(err.Error(), "stream K8S does not exist") {
		t.Errorf("without the stream, and not allowed to create it: %v", err)
	}
	if _, err := js.CreateStream(
		t.Context(),
		jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}, Storage: jetstream.MemoryStorage},
	); err != nil {
		t.Fatal(err)
	}
	send(t, careful, sinktest.Message("a", 3, 100))
}

// A subject that another stream took over is not written to that stream.
func TestSubjectOfAnotherStream(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) { c.Stream.Storage = "memory" } // a server may still remove the directory of a deleted stream
	sink := connect(t, b)
	js := b.js(t)
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	other, err := js.CreateStream(
		t.Context(),
		jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"k8s.>"}, Storage: jetstream.MemoryStorage},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := try(t, sink, sinktest.Message("a", 1, 100))[0]; err == nil || sinks.IsPermanent(err) ||
		!strings.Contains(err.Error(), "another stream has this subject") {
		t.Errorf("Send: %v", err)
	}
	info, err := other.Info(t.Context())
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("the other stream has %d messages (%v)", info.State.Msgs, err)
	}
}

// A full stream with discard: new pushes back, and takes the rest when there is room again.
func TestFullStreamPushesBack(t *testing.T) {
	b := newBroker(t)
	b.edit = func(c *nats.Config) { c.Stream.Discard = "new" }
	sink := connect(t, b)
	stream, err := b.js(t).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	limited := stream.CachedInfo().Config
	limited.MaxMsgs = 5
	if _, err := b.js(t).UpdateStream(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	var batch []*event.Message
	for v := range 8 {
		batch = append(batch, sinktest.Message("a", v+1, 100))
	}
	results := try(t, sink, batch...)
	for i, err := range results {
		switch {
		case i < 5 && err != nil:
			t.Errorf("message %d: %v", i, err)
		case i == 5 && (err == nil || sinks.IsPermanent(err) || sinks.IsMaybeWritten(err) || !strings.Contains(err.Error(), "full, with discard: new")):
			t.Errorf("message %d, to a full stream: %v, want a plain error", i, err)
		case i > 5 && !errors.Is(err, sinks.ErrNotAttempted):
			t.Errorf("message %d, behind one that failed: %v", i, err)
		}
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, sink, batch[5:]...)
}

// What the stream's own limit refuses is oversize too, and a subject too long for the protocol is refused here.
func TestOversizeForStreamAndProtocol(t *testing.T) {
	b := newBroker(t)
	if _, err := b.js(t).
		CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}, MaxMsgSize: 5000}); err != nil {
		t.Fatal(err)
	}
	sink := connect(t, b)
	headers := sinktest.Message("c", 1, 100)
	headers.Identity.Manager = strings.Repeat("m", 70_000)
	batch := []*event.Message{
		sinktest.Message(
			"a",
			1,
			100,
		),
		sinktest.Message("a", 2, 6000),
		sinktest.Message(strings.Repeat("b", 3000), 1, 100),
		headers,
		sinktest.Message("d", 1, 100),
	}
	for i, err := range try(t, sink, batch...) {
		if refused := i >= 1 &&
			i <= 3; refused != (sinks.IsPermanent(err) && errors.Is(err, sinks.ErrOversize)) ||
			!refused && err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

func TestRepetitionsAreDropped(t *testing.T) {
	b := newBroker(t)
	sink := connect(t, b)
	send(t, sink, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	send(t, sink, sinktest.Message("a", 1, 100), sinktest.Message("b", 2, 100))
	if n := len(b.messages(t)); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}

// A stream that was created again is another destination, which knows no names of clusters.
func TestARecreatedStreamIsAnotherDestination(t *testing.T) {
	b := newBroker(t)
	claim := func(uid string) (destination string, err error) {
		sink := connect(t, b)
		return sink.Destination(), sinks.Claim(t.Context(), sink, "live", sinks.Owner{Cluster: "prod", UID: uid})
	}
	before, err := claim("k1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim("k2"); !errors.Is(err, sinks.ErrNameTaken) {
		t.Errorf("a second cluster: %v", err)
	}
	b.Stop(t)
	b.Start(t)
	if same, err := claim("k1"); same != before || err != nil {
		t.Errorf("after a restart of the server it is %s, not %s; %v", same, before, err)
	}
	if err := b.js(t).DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	after, err := claim("k2")
	if after == before || err != nil {
		t.Errorf("created again it is %s, as before %s; %v", after, before, err)
	}
	if _, err := claim("k1"); !errors.Is(err, sinks.ErrNameTaken) {
		t.Errorf("the cluster that had the name in the old stream: %v", err)
	}
}

// Without a bucket, names are registered in the metadata of the stream.
func TestNamesInTheMetadata(t *testing.T) {
	b := newBroker(t)
	js := b.js(t)
	if _, err := js.CreateStream(
		t.Context(),
		jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"$KV.deltabridge-clusters.>"}},
	); err != nil {
		t.Fatal(err) // it takes the subjects of the bucket, so that there can be none
	}
	sink := connect(t, b)
	if err := sinks.Claim(t.Context(), sink, "live", sinks.Owner{Cluster: "prod", UID: "k1"}); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), streamName)
	if err != nil || !strings.Contains(stream.CachedInfo().Config.Metadata["deltabridge.cluster.prod"], `"k1"`) {
		t.Errorf("metadata %v, %v", stream.CachedInfo().Config.Metadata, err)
	}
	if err := sinks.Claim(
		t.Context(),
		connect(t, b),
		"live",
		sinks.Owner{Cluster: "prod", UID: "k2"},
	); !errors.Is(
		err,
		sinks.ErrNameTaken,
	) {
		t.Errorf("a second cluster: %v", err)
	}
}

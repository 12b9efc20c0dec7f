package nats_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// broker is a real nats-server with a file store. The sink reaches it through a proxy; readers do not.
type broker struct {
	*sinktest.Proxy
	opts  *server.Options
	srv   *server.Server // nil if the server is a program of its own
	stop  func()
	edit  func(*nats.Config) // changes the sinks' configuration
	parts []string           // subjects of the stream, if it was divided
	name  string             // of the stream, unless it is streamName

	// Only in a cluster:
	members []*broker
	routes  []*sinktest.Proxy // the connections between the members
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{opts: &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 1 << 30, NoLog: true, NoSigs: true,
	}}
	b.Start(t)
	t.Cleanup(func() { b.Stop(t) })
	b.Proxy = sinktest.NewProxy(t, strings.TrimPrefix(natsserver.ClientURL(b.opts), "nats://"))
	return b
}

// Start implements sinktest.Stopper. The first start chooses the port for the later ones.
func (b *broker) Start(t testing.TB) {
	t.Helper()
	b.srv, b.stop = natsserver.Start(t, b.opts)
}

// Stop implements sinktest.Stopper.
func (b *broker) Stop(testing.TB) { b.stop() }

const (
	streamName = "K8S"
	subject    = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"
)

func (b *broker) config() nats.Config {
	cfg := nats.Config{
		Servers:    nats.Servers{URLs: []string{"nats://" + b.Addr()}},
		Stream:     nats.StreamConfig{Name: streamName, Create: true, Subjects: []string{"k8s.>"}},
		Subject:    subject,
		AckTimeout: 30 * time.Second,
	}
	if b.edit != nil {
		b.edit(&cfg)
	}
	return cfg
}

// NewSink implements sinktest.Destination.
func (b *broker) NewSink(t testing.TB) sinks.Sink {
	t.Helper()
	cfg := b.config()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	sink := nats.New(cfg)
	return sink
}

// Takes implements sinktest.Observer.
func (b *broker) Takes(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	conn, err := natsgo.Connect(
		natsserver.ClientURL(b.opts),
		natsgo.NoReconnect(),
		natsgo.Timeout(time.Until(deadline)),
	)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := conn.RequestWithContext(ctx, "k8s.observer", nil)
	if err == nil && !strings.Contains(string(answer.Data), `"seq"`) {
		err = errors.New(string(answer.Data))
	}
	return err
}

// Divide implements sinktest.Divider.
func (b *broker) Divide(t *testing.T, resources []string) {
	t.Helper()
	for _, resource := range resources {
		b.parts = append(b.parts, "k8s.*.*."+resource+".>")
	}
	if _, err := b.js(t).CreateStream(t.Context(), b.divided()); err != nil {
		t.Fatal(err)
	}
	b.edit = func(c *nats.Config) { c.Stream = nats.StreamConfig{Name: streamName} }
}

func (b *broker) divided() jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: streamName, Subjects: b.parts, Duplicates: 2 * time.Minute, AllowDirect: true}
}

// Add implements sinktest.Divider.
func (b *broker) Add(t *testing.T, resource string) {
	t.Helper()
	b.parts = append(b.parts, "k8s.*.*."+resource+".>")
	if _, err := b.js(t).UpdateStream(t.Context(), b.divided()); err != nil {
		t.Fatal(err)
	}
}

const controlStream = "K8S-CONTROL"

// apart lets sinks send control events to a stream of their own.
func apart(c *nats.Config) {
	place := sinks.ControlPlace{Subject: "control.{cluster}.{resource}.{name}", Stream: controlStream}
	*c = *c.WithControl(&place).(*nats.Config)
}

// Separate implements sinktest.Separator.
func (b *broker) Separate(t *testing.T) {
	t.Helper()
	b.parts = []string{"k8s.>"}
	if _, err := b.js(t).CreateStream(t.Context(), b.divided()); err != nil {
		t.Fatal(err)
	}
	edit := b.edit
	b.edit = func(c *nats.Config) {
		if edit != nil {
			edit(c)
		}
		c.Stream.Create = false
		apart(c)
	}
}

// AddPlace implements sinktest.Separator.
func (b *broker) AddPlace(t *testing.T) {
	t.Helper()
	config := jetstream.StreamConfig{Name: controlStream, Subjects: []string{"control.>"}}
	if _, err := b.js(t).CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// ControlRecords implements sinktest.Separator.
func (b *broker) ControlRecords(t testing.TB) []sinktest.Record {
	t.Helper()
	control := *b
	control.name = controlStream
	return control.Records(t)
}

// Before implements sinktest.Separator.
func (b *broker) Before(t testing.TB, p event.Position) (n int) {
	t.Helper()
	if p.Stream != streamName {
		t.Errorf("position in stream %s", p.Stream)
	}
	for _, m := range b.messages(t) {
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if meta.Sequence.Stream < p.Sequence {
			n++
		}
	}
	return n
}

// js is a client of the server's own, not through the proxy.
func (b *broker) js(t testing.TB) jetstream.JetStream {
	t.Helper()
	return natsserver.Connect(t, natsserver.ClientURL(b.opts))
}

// messages reads the whole stream.
func (b *broker) messages(t testing.TB) []jetstream.Msg {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream := b.stream(t)
	info := stream.CachedInfo()
	var consumer jetstream.Consumer
	natsserver.Repeat(t, "create a consumer", func(ctx context.Context) (err error) {
		consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		return err
	})
	var out []jetstream.Msg
	for uint64(len(out)) < info.State.Msgs {
		batch, err := consumer.Fetch(int(info.State.Msgs)-len(out), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			t.Fatalf("reader: %v", err)
		}
		for m := range batch.Messages() {
			out = append(out, m)
		}
		// A fetch may end early: in a cluster, the consumer may not have a leader yet.
		if ctx.Err() != nil {
			t.Fatalf("reader: %d of %d messages: %v", len(out), info.State.Msgs, batch.Error())
		}
	}
	return out
}

// Records implements sinktest.Destination. The CloudEvents SDK takes the messages apart.
func (b *broker) Records(t testing.TB) []sinktest.Record {
	t.Helper()
	var out []sinktest.Record
	for _, m := range b.messages(t) {
		ev := cloudEvent(t, m)
		attributes, data := attributesOf(ev)
		out = append(out, sinktest.Record{
			Key: m.Subject(), Attributes: attributes, Data: data,
			Whole: natsMessage{m}.ReadEncoding() == binding.EncodingStructured,
		})
	}
	return out
}

package kafka

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/registry"
)

// avroConsumer reads values as any consumer of the Confluent wire format: it knows nothing but the registry.
type avroConsumer struct {
	*sr.Client
	schemas map[int]*avro.Schema
}

func newAvroConsumer(t *testing.T, url string) *avroConsumer {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	client, err := sr.NewClient(sr.URLs(url), sr.HTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return &avroConsumer{client, map[int]*avro.Schema{}}
}

// values returns the fields of the values of a topic, and checks that the schema is in the topic's subject. A tombstone
// is nil.
func (c *avroConsumer) values(t *testing.T, broker, topic string) (all []map[string]any) {
	t.Helper()
	for _, records := range testkafka.ReadAll(t, broker, topic) {
		for _, r := range records {
			all = append(all, c.value(t, r))
		}
	}
	return all
}

func (c *avroConsumer) value(t *testing.T, r *kgo.Record) (fields map[string]any) {
	t.Helper()
	if r.Value == nil {
		return nil
	}
	id, record, err := new(sr.ConfluentHeader).DecodeID(r.Value)
	if err != nil {
		t.Fatalf("%v: %q", err, r.Value)
	}
	if c.schemas[id] == nil {
		found, err := c.SchemaByID(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if c.schemas[id], err = avro.Parse(found.Schema); err != nil {
			t.Fatal(err)
		}
		latest, err := c.SchemaByVersion(t.Context(), r.Topic+"-value", -1)
		if err != nil || latest.Schema.Schema != found.Schema {
			t.Errorf("the subject of %s has another schema, %v", r.Topic, err)
		}
	}
	if rest, err := c.schemas[id].Decode(record, &fields); err != nil || len(rest) > 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	return fields
}

// TestAvroWithRegistry: a registry that is away when the sink starts, is away later, has an incompatible schema, or has
// lost its schemas. No event is lost, and other topics are not delayed.
func TestAvroWithRegistry(t *testing.T) {
	broker, server := testkafka.ForTest(t), registry.NewForTest(t)
	for _, topic := range []string{"avro.a", "avro.taken"} {
		testkafka.CreateTopic(t, broker.Addr(), topic, 1, nil)
	}
	cfg := Config{
		Brokers: []string{broker.Addr()}, Topic: "avro.{name}", Tombstones: true,
		CreateTopics: &CreateTopics{Partitions: 1, ReplicationFactor: 1}, Avro: &AvroConfig{RegistryURL: server.URL()},
	}
	s := newSink(t, cfg)
	s.Resume(sinks.Resume{Writer: "w/avro", Store: new(stored).add})
	waitUntil(t, func() bool { // the broker may not have producer ids yet
		known, ok := errors.AsType[*sinks.ConnectError](s.Connect(t.Context()))
		return ok && known.Step == sinks.StepConnect && strings.Contains(known.Error(), "nothing listens there")
	})

	server.Start(t)
	consumer := newAvroConsumer(t, server.URL())
	consumer.occupy(t, "avro.taken-value")
	want := []string{"ok " + server.URL(), "ok topic avro.a", "FAIL " + server.Address()}
	if diff := cmp.Diff(want, schemaFindings(t, cfg)); diff != "" {
		t.Errorf("doctor (-want +got):\n%s", diff)
	}
	if err := s.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken := change(event.Added, "taken", 1)
	err := failure(t, s, taken)
	got := sinktest.Blame(t, err, server.Address())
	if got.Step != sinks.StepSchema || !strings.Contains(got.Text, "409 Conflict") || !sinks.IsRejected(err) {
		t.Errorf("with an incompatible schema: %+v", got)
	}
	if part, ok := errors.AsType[*sinks.UnavailableError](err); !ok || part.Destination != "avro.taken" {
		t.Errorf("with an incompatible schema: %v", err)
	}
	mustSend(t, s, change(event.Added, "a", 1), change(event.Deleted, "a", 2))
	consumer.check(t, broker, "avro.a", change(event.Added, "a", 1), change(event.Deleted, "a", 2), nil)

	server.Stop() // and lose its schemas
	if err := s.Connect(t.Context()); err != nil {
		t.Errorf("the sink is not connected without a registry: %v", err)
	}
	b := change(event.Added, "b", 1)
	if err := failure(t, s, b); !strings.Contains(err.Error(), "nothing listens there") {
		t.Errorf("a new topic without a registry: %v", err)
	}
	mustSend(t, s, change(event.Added, "a", 3))
	server.Start(t)
	mustSend(t, s, b)
	consumer.check(t, broker, "avro.b", b)
	next := newSink(t, cfg)
	next.Resume(sinks.Resume{Writer: "w/avro", Store: new(stored).add})
	mustSend(t, next, change(event.Updated, "a", 4))
	consumer.check(t, broker, "avro.a", change(event.Added, "a", 1), change(event.Deleted, "a", 2), nil,
		change(event.Added, "a", 3), change(event.Updated, "a", 4))
	want = []string{"ok " + server.URL(), "ok topic avro.a", "ok topic avro.b", "ok topic avro.taken"}
	if diff := cmp.Diff(want, schemaFindings(t, cfg)); diff != "" {
		t.Errorf("doctor (-want +got):\n%s", diff)
	}
	checkRead(t, next)
}

// occupy registers another schema.
func (c *avroConsumer) occupy(t *testing.T, subject string) {
	t.Helper()
	other := sr.Schema{Schema: `{"type":"record","name":"Other","fields":[{"name":"id","type":"int"}]}`}
	if _, err := c.RegisterSchema(t.Context(), subject, other, -1, -1); err != nil {
		t.Fatal(err)
	}
	for _, result := range c.SetCompatibility(t.Context(), sr.SetCompatibility{Level: sr.CompatBackward}, subject) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

// check compares the values of a topic with messages. A nil message is a tombstone.
func (c *avroConsumer) check(t *testing.T, broker *testkafka.Broker, topic string, want ...*event.Message) {
	t.Helper()
	var expected []map[string]any
	for _, m := range want {
		if m == nil {
			expected = append(expected, nil)
			continue
		}
		expected = append(expected, map[string]any{
			"id": m.ID, "type": m.Type.CloudEventsType(), "time": testTime, "data": string(m.Data),
		})
	}
	all := c.values(t, broker.Addr(), topic)
	for _, fields := range all {
		maps.DeleteFunc(fields, func(name string, _ any) bool {
			return !slices.Contains([]string{"id", "type", "time", "data"}, name)
		})
	}
	if diff := cmp.Diff(expected, all); diff != "" {
		t.Errorf("topic %s (-sent +read):\n%s", topic, diff)
	}
}

// schemaFindings returns the result and the target of each check of schemas.
func schemaFindings(t *testing.T, cfg Config) (all []string) {
	t.Helper()
	for _, f := range newSink(t, cfg).Check(t.Context()) {
		if f.Step != sinks.StepSchema {
			continue
		}
		result := "ok "
		if f.Err != nil {
			result = "FAIL "
		}
		all = append(all, result+f.Target)
	}
	return all
}

// failure sends a message until the sink knows why it cannot be sent.
func failure(t *testing.T, s *Sink, m *event.Message) (err error) {
	t.Helper()
	waitUntil(t, func() bool {
		err = send(t, s, m)[0]
		_, known := errors.AsType[*sinks.ConnectError](err)
		return known
	})
	return err
}

// checkRead: `bridge tail` shows the attributes and the data.
func checkRead(t *testing.T, s *Sink) {
	t.Helper()
	want := change(event.Updated, "a", 4)
	var read []string
	if err := s.Read(t.Context(), diagnose.ReadOptions{}, func(r *diagnose.Record) error {
		if r.Foreign != nil {
			t.Error(r.Foreign)
		}
		read = append(read, r.Attributes["subject"]+" "+string(r.Data))
		return nil
	}); err != nil {
		t.Error(err)
	}
	if !slices.Contains(read, want.Subject()+" "+string(want.Data)) {
		t.Errorf("%q", read)
	}
}

// Dead letters are JSON, and control events are Avro.
func TestAvroTopics(t *testing.T) {
	cfg := &Config{Brokers: []string{"a:9092"}, Topic: "t", Avro: &AvroConfig{RegistryURL: "http://a"}}
	letters, ok := cfg.Letters("s", &sinks.LetterPlace{Topic: "dead"}).(*Config)
	if !ok || letters.Avro != nil {
		t.Errorf("the dead letters require %+v", letters.Avro)
	}
	control, ok := cfg.Control(&sinks.ControlPlace{Topic: "control"}).(*Config)
	if !ok || control.Avro == nil {
		t.Error("the control events have no schema")
	}
}

// TestRegistryHangs: a registry that does not answer for one topic does not delay the events of another topic for long.
func TestRegistryHangs(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "avro.a", "avro.b"))
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/avro.a-value") {
			<-release
		}
		_, _ = io.WriteString(w, `{"id": 7}`) // fails if the client has gone
	}))
	defer server.Close()
	s := newSink(t, Config{
		Brokers: fake.ListenAddrs(), Topic: "avro.{name}", RequestTimeout: time.Minute,
		Avro: &AvroConfig{RegistryURL: server.URL},
	})
	a, b := change(event.Added, "a", 1), change(event.Added, "b", 1)
	results := send(t, s, a, b)
	if !errors.Is(results[0], errNaming) || results[1] != nil {
		t.Errorf("while the registry hangs: %v", results)
	}
	began := time.Now()
	if results := send(t, s, change(event.Updated, "b", 2), a); results[0] != nil || time.Since(began) > fenceWait/2 {
		t.Errorf("after %v: %v", time.Since(began), results)
	}
	close(release)
	mustSend(t, s, a)
}

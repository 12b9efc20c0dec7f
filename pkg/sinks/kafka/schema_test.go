package kafka

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
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
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
	testregistry "github.com/deltabridge/deltabridge/test/registry"
)

// schemaConsumer reads values as any consumer that finds schemas by the ids in records: it knows nothing but the
// registry.
type schemaConsumer struct {
	*sr.Client
	format registry.Format
}

func newSchemaConsumer(t *testing.T, url string, format registry.Format) *schemaConsumer {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	client, err := sr.NewClient(sr.URLs(url), sr.HTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return &schemaConsumer{client, format}
}

// fields are those fields of a value that are compared with a message.
type fields struct {
	ID   string
	Type string
	Time time.Time
	Data json.RawMessage
}

// value returns the fields of a value. If it was written since the registry lost its schemas, value checks that its
// schema is that of the topic's subject. A tombstone has none.
func (c *schemaConsumer) value(t *testing.T, r *kgo.Record, current bool) *fields {
	t.Helper()
	id, record := c.split(t, r)
	if r.Value == nil {
		return nil
	}
	latest, err := c.SchemaByVersion(t.Context(), r.Topic+"-value", -1)
	if err != nil {
		t.Fatal(err)
	}
	guid, err := hex.DecodeString(strings.ReplaceAll(latest.GUID, "-", ""))
	if err != nil {
		t.Fatal(err)
	}
	want := binary.BigEndian.AppendUint32([]byte{0}, uint32(latest.ID))
	if c.format == FormatJSON && len(guid) > 0 {
		want = append([]byte{1}, guid...)
	}
	if current && !bytes.Equal(id, want) {
		t.Errorf("the id in topic %s is %x, want %x", r.Topic, id, want)
	}
	f := new(fields)
	if c.format == FormatJSON {
		if err := json.Unmarshal(record, f); err != nil || latest.Type != sr.TypeJSON {
			t.Fatalf("%v: %s with a schema of type %s", err, record, latest.Type)
		}
		return f
	}
	schema, err := avro.Parse(latest.Schema.Schema)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if rest, err := schema.Decode(record, &values); err != nil || len(rest) > 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	f.ID, f.Type, f.Time = values["id"].(string), values["type"].(string), values["time"].(time.Time)
	f.Data = json.RawMessage(values["data"].(string))
	return f
}

// split returns the encoded id of the schema, and the value without it. A tombstone must not have an id.
func (c *schemaConsumer) split(t *testing.T, r *kgo.Record) (id, record []byte) {
	t.Helper()
	for _, h := range r.Headers {
		if h.Key == headerSchemaID {
			id = h.Value
		}
	}
	inHeader := c.format == FormatJSON && r.Value != nil
	if inHeader != (id != nil) {
		t.Fatalf("the header with the id is %x, with the value %q", id, r.Value)
	}
	if inHeader || r.Value == nil {
		return id, r.Value
	}
	return r.Value[:5], r.Value[5:]
}

// check compares the values of a topic with messages. A nil message is a tombstone.
func (c *schemaConsumer) check(t *testing.T, broker, topic string, want ...*event.Message) {
	t.Helper()
	var expected, all []*fields
	for _, m := range want {
		if m == nil {
			expected = append(expected, nil)
			continue
		}
		expected = append(expected, &fields{m.ID, m.Type.CloudEventsType(), testTime, m.Data})
	}
	for _, records := range testkafka.ReadAll(t, broker, topic) {
		for n, r := range records {
			all = append(all, c.value(t, r, n == len(records)-1))
		}
	}
	if diff := cmp.Diff(expected, all); diff != "" {
		t.Errorf("topic %s (-sent +read):\n%s", topic, diff)
	}
}

// occupy registers another schema. In JSON, it is one as that of an earlier version of the bridge.
func (c *schemaConsumer) occupy(t *testing.T, subject string) {
	t.Helper()
	other := sr.Schema{Schema: `{"type":"record","name":"Other","fields":[{"name":"id","type":"int"}]}`}
	if c.format == FormatJSON {
		text, _ := schemas.Get("cloudevent")
		earlier := strings.Replace(text, `"owneruid": {"type": "string", "minLength": 1},`, "", 1)
		other = sr.Schema{Schema: earlier, Type: sr.TypeJSON}
		if earlier == text {
			t.Fatal("the schema is not another one")
		}
	}
	if _, err := c.RegisterSchema(t.Context(), subject, other, -1, -1); err != nil {
		t.Fatal(err)
	}
	c.level(t, subject, sr.CompatBackward)
}

// level sets the compatibility level of a subject.
func (c *schemaConsumer) level(t *testing.T, subject string, level sr.CompatibilityLevel) {
	t.Helper()
	for _, result := range c.SetCompatibility(t.Context(), sr.SetCompatibility{Level: level}, subject) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

// registered is a sink with a schema registry, which sends to several topics.
type registered struct {
	*schemaConsumer
	cfg    Config
	sink   *Sink
	server *testregistry.Registry
	prefix string // of topics
}

func newRegistered(t *testing.T, broker string, server *testregistry.Registry, format registry.Format) *registered {
	t.Helper()
	r := &registered{newSchemaConsumer(t, server.URL(), format), Config{
		Brokers: []string{broker}, Topic: string(format) + ".{name}", Tombstones: true,
		CreateTopics:   &CreateTopics{Partitions: 1, ReplicationFactor: 1},
		SchemaRegistry: &SchemaRegistry{URL: server.URL(), Format: format},
	}, nil, server, string(format) + "."}
	for _, topic := range []string{"a", "taken"} {
		testkafka.CreateTopic(t, broker, r.prefix+topic, 1, nil)
	}
	r.sink = r.start(t)
	waitUntil(t, func() bool { // the broker may not have producer ids yet
		known, ok := errors.AsType[*sinks.ConnectError](r.sink.Connect(t.Context()))
		return ok && known.Step == sinks.StepConnect && strings.Contains(known.Error(), "nothing listens there")
	})
	return r
}

func (r *registered) start(t *testing.T) *Sink {
	t.Helper()
	s := newSink(t, r.cfg)
	s.Resume(sinks.Resume{Writer: "w/" + r.prefix, Store: new(stored).add})
	return s
}

// TestSchemaRegistry: a registry that is away when the sink starts, is away later, has an incompatible schema, or has
// lost its schemas. No event is lost, and other topics are not delayed.
func TestSchemaRegistry(t *testing.T) {
	t.Parallel()
	broker, server := testkafka.ForTest(t), testregistry.NewForTest(t)
	var all []*registered
	for _, format := range []registry.Format{FormatAvro, FormatJSON} {
		all = append(all, newRegistered(t, broker.Addr(), server, format))
	}
	server.Start(t)
	for _, r := range all {
		r.testTaken(t)
	}
	server.Stop() // and lose its schemas
	b := change(event.Added, "b", 1)
	for _, r := range all {
		if err := r.sink.Connect(t.Context()); err != nil {
			t.Errorf("the sink is not connected without a registry: %v", err)
		}
		if err := failure(t, r.sink, b); !strings.Contains(err.Error(), "nothing listens there") {
			t.Errorf("a new topic without a registry: %v", err)
		}
		mustSend(t, r.sink, change(event.Added, "a", 3))
	}
	server.Start(t)
	for _, r := range all {
		mustSend(t, r.sink, b)
		r.check(t, broker.Addr(), r.prefix+"b", b)
		next := r.start(t)
		mustSend(t, next, change(event.Updated, "a", 4))
		r.check(t, broker.Addr(), r.prefix+"a", change(event.Added, "a", 1), change(event.Deleted, "a", 2), nil,
			change(event.Added, "a", 3), change(event.Updated, "a", 4))
		want := []string{
			"ok " + server.URL(), "ok topic " + r.prefix + "a", "ok topic " + r.prefix + "b", "ok topic " + r.prefix + "taken",
		}
		if diff := cmp.Diff(want, schemaFindings(t, r.cfg)); diff != "" {
			t.Errorf("doctor (-want +got):\n%s", diff)
		}
		checkRead(t, next)
	}
}

// testTaken: a topic whose subject has another schema takes no events, and another topic does.
func (r *registered) testTaken(t *testing.T) {
	t.Helper()
	subject := r.prefix + "taken-value"
	r.occupy(t, subject)
	want := []string{"ok " + r.server.URL(), "ok topic " + r.prefix + "a", "FAIL " + r.server.Address()}
	if diff := cmp.Diff(want, schemaFindings(t, r.cfg)); diff != "" {
		t.Errorf("doctor (-want +got):\n%s", diff)
	}
	if err := r.sink.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	taken := change(event.Added, "taken", 1)
	err := failure(t, r.sink, taken)
	got := sinktest.Blame(t, err, r.server.Address())
	remedy := "the subject " + subject + " has another schema: use another topic"
	if r.format == FormatJSON {
		remedy = "set the compatibility level of the subject to NONE"
	}
	if got.Step != sinks.StepSchema || !strings.Contains(got.Text, remedy) || !strings.Contains(got.Text, subject) {
		t.Errorf("with an incompatible schema: %+v", got)
	}
	if part, ok := errors.AsType[*sinks.UnavailableError](err); !ok || part.Destination != r.prefix+"taken" {
		t.Errorf("with an incompatible schema: %v", err)
	}
	broker := r.cfg.Brokers[0]
	mustSend(t, r.sink, change(event.Added, "a", 1), change(event.Deleted, "a", 2))
	r.check(t, broker, r.prefix+"a", change(event.Added, "a", 1), change(event.Deleted, "a", 2), nil)
	if r.format == FormatJSON {
		r.level(t, subject, sr.CompatNone)
		mustSend(t, r.sink, taken)
		r.check(t, broker, r.prefix+"taken", taken)
	}
}

// TestGUID: the header contains the GUID if the registry has GUIDs, also for a message that was stored in binary mode.
func TestGUID(t *testing.T) {
	fake, server := newFake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t")), srfake.New()
	defer server.Close()
	s := newSink(t, Config{
		Brokers: fake.ListenAddrs(), Topic: "t", Tombstones: true,
		SchemaRegistry: &SchemaRegistry{URL: server.URL(), Format: FormatJSON},
	})
	binaryMode, structured := change(event.Added, "b", 3), change(event.Deleted, "a", 2)
	structured.Structured = true
	mustSend(t, s, structured, binaryMode)
	c := newSchemaConsumer(t, server.URL(), FormatJSON)
	c.check(t, fake.ListenAddrs()[0], "t", structured, nil, binaryMode)
	if known, err := c.SchemaByVersion(t.Context(), "t-value", -1); err != nil || known.GUID == "" {
		t.Errorf("the registry has no GUID: %v", err)
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

// Dead letters have no schema, and control events have one.
func TestSchemaOfOtherTopics(t *testing.T) {
	cfg := &Config{
		Brokers: []string{"a:9092"}, Topic: "t", SchemaRegistry: &SchemaRegistry{URL: "http://a", Format: FormatJSON},
	}
	letters, ok := cfg.Letters("s", &sinks.LetterPlace{Topic: "dead"}).(*Config)
	if !ok || letters.SchemaRegistry != nil {
		t.Errorf("the dead letters require %+v", letters.SchemaRegistry)
	}
	control, ok := cfg.Control(&sinks.ControlPlace{Topic: "control"}).(*Config)
	if !ok || control.SchemaRegistry == nil {
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
		SchemaRegistry: &SchemaRegistry{URL: server.URL, Format: FormatAvro},
	})
	a, b := change(event.Added, "a", 1), change(event.Added, "b", 1)
	results := send(t, s, a, b)
	if !errors.Is(results[0], errNaming) || results[1] != nil {
		t.Errorf("while the registry hangs: %v", results)
	}
	soonInOneRound(t, fenceWait/2, func(round int) {
		if results := send(t, s, change(event.Updated, "b", 1+round), a); results[0] != nil {
			t.Error(results)
		}
	})
	close(release)
	mustSend(t, s, a)
}

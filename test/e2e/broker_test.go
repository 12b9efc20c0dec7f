package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/freeport"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// received is an event as an independent client read it back from a broker.
type received struct {
	attributes map[string]string
	data       []byte
	messageID  string // Nats-Msg-Id; empty on Kafka
	place      string // where the record is, and who wrote it when; empty on JetStream
}

func (r received) id() string              { return r.attributes["id"] }
func (r received) subject() string         { return r.attributes["subject"] }
func (r received) resourceVersion() string { return r.attributes["resourceversion"] }

// object reports whether the event is a change of an object, and no control event.
func (r received) object() bool {
	return strings.HasPrefix(r.attributes["type"], "dev.deltabridge.object.")
}

// jetStream is a real JetStream server, which keeps its port and its files over a restart.
type jetStream struct {
	t       *testing.T
	dir     string
	port    int
	monitor int      // the port of its HTTP API
	more    []string // lines of its configuration file
	process *exec.Cmd

	// Of a member of a cluster: where it listens for the others, and where they do.
	route  int
	routes []*url.URL
}

func newJetStream(t *testing.T) *jetStream {
	t.Helper()
	ports := freePorts(t, 2)
	js := &jetStream{t: t, dir: t.TempDir(), port: ports[0], monitor: ports[1]}
	t.Cleanup(js.stop)
	return js
}

// freePorts returns different ports on which nobody listens.
func freePorts(t *testing.T, count int) (ports []int) {
	t.Helper()
	ports, err := freeport.Reserve(count)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

func startJetStream(t *testing.T) *jetStream {
	t.Helper()
	js := newJetStream(t)
	js.start()
	return js
}

func (js *jetStream) addr() string { return net.JoinHostPort("127.0.0.1", itoa(js.port)) }
func (js *jetStream) url() string  { return (&url.URL{Scheme: "nats", Host: js.addr()}).String() }

// secure gives the server a certificate of an authority that nobody knows, and returns the authority's certificate as
// PEM. Call it before start.
func (js *jetStream) secure() (ca []byte) {
	js.t.Helper()
	authority, err := certs.New("a test")
	if err != nil {
		js.t.Fatal(err)
	}
	cert, key, err := authority.Issue(certs.Options{Name: "nats", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		js.t.Fatal(err)
	}
	file := filepath.Join(js.dir, "server.pem")
	if err := os.WriteFile(file, slices.Concat(key, cert), 0o600); err != nil {
		js.t.Fatal(err)
	}
	js.more = append(js.more, fmt.Sprintf("tls {cert_file: %q, key_file: %q}", file, file))
	return authority.PEM()
}

// api is that of an independent client.
func (js *jetStream) api() (api jetstream.JetStream, closeConn func()) {
	js.t.Helper()
	conn, err := natsgo.Connect(js.url(), natsgo.Timeout(patience(natsgo.DefaultTimeout)))
	if err != nil {
		js.t.Fatal(err)
	}
	api, err = jetstream.New(conn, jetstream.WithDefaultTimeout(patience(5*time.Second)))
	if err != nil {
		js.t.Fatal(err)
	}
	return api, conn.Close
}

// create makes a stream.
func (js *jetStream) create(config jetstream.StreamConfig) {
	js.t.Helper()
	api, closeConn := js.api()
	defer closeConn()
	natsserver.CreateStream(js.t, api, config)
}

// streams gives the names of all.
func (js *jetStream) streams() (names []string) {
	js.t.Helper()
	api, closeConn := js.api()
	defer closeConn()
	lister := api.StreamNames(js.t.Context())
	for name := range lister.Name() {
		names = append(names, name)
	}
	if err := lister.Err(); err != nil {
		js.t.Fatal(err)
	}
	return names
}

// read gives all messages of a stream, in its order.
func (js *jetStream) read(stream string) []received {
	js.t.Helper()
	api, closeConn := js.api()
	defer closeConn()
	ctx, cancel := context.WithTimeout(js.t.Context(), patience(time.Minute))
	defer cancel()
	s := natsserver.Stream(js.t, api, stream)
	want := s.CachedInfo().State.Msgs
	var consumer jetstream.Consumer
	natsserver.Repeat(js.t, "create a consumer", func(ctx context.Context) (err error) {
		consumer, err = s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		return err
	})
	all := make([]received, 0, want)
	for uint64(len(all)) < want {
		batch, err := consumer.Fetch(int(min(1000, want-uint64(len(all)))), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			js.t.Fatal(err)
		}
		for m := range batch.Messages() {
			all = append(all, fromNATS(m.Headers(), m.Data()))
		}
		// A fetch may fail: in a cluster, the consumer may not have a leader yet.
		if ctx.Err() != nil {
			js.t.Fatalf("%d of %d messages: %v", len(all), want, batch.Error())
		}
	}
	return all
}

func fromNATS(headers natsgo.Header, data []byte) received {
	r := received{attributes: map[string]string{}, data: data, messageID: headers.Get("Nats-Msg-Id")}
	for name, values := range headers {
		if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
			r.attributes[attribute] = values[0]
		}
	}
	r.complete()
	return r
}

// complete adds the attributes that a change has no headers for, as a consumer finds them in the rest of the event.
func (r received) complete() {
	if !r.object() {
		return
	}
	type identity struct{ Kind, APIVersion string }
	var data struct {
		identity
		Object        identity  // of the payload change
		Before, After *identity // of the payload debezium
	}
	_ = json.Unmarshal(r.data, &data) // as far as possible: an object can have members with these names
	for _, of := range []*identity{&data.Object, data.Before, data.After} {
		if of != nil && of.Kind != "" {
			data.identity = *of
		}
	}
	resource, object, _ := strings.Cut(r.subject(), "/")
	namespace, name, _ := strings.Cut(object, "/")
	resource, _, _ = strings.Cut(resource, ".")
	maps.Copy(r.attributes, map[string]string{
		"cluster": path.Base(r.attributes["source"]), "operation": path.Ext(r.attributes["type"])[1:],
		"resource": resource, "name": name, "apiversion": data.APIVersion, "kind": data.Kind,
	})
	if namespace != "" {
		r.attributes["namespace"] = namespace
	}
}

// takes makes one attempt to store a message in the stream, as a client of its own.
func (js *jetStream) takes(ctx context.Context) error {
	conn, err := natsgo.Connect(js.url(), natsgo.NoReconnect(), natsgo.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := conn.RequestWithContext(ctx, "k8s.independent", nil)
	if err == nil && !strings.Contains(string(answer.Data), `"seq"`) {
		err = errors.New(string(answer.Data))
	}
	return err
}

// kafkaTakes makes one attempt to store a record in a topic, as a client of its own: one that is idempotent, as
// producers are by default. A broker that has just started grants producer ids later than it takes records.
func kafkaTakes(ctx context.Context, addr, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addr),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, &kgo.Record{Value: []byte("independent")}).FirstErr()
}

// receivedFrom returns the event of a record. A tombstone has no attributes.
func receivedFrom(t *testing.T, record *kgo.Record) received {
	t.Helper()
	r := received{attributes: map[string]string{}, data: record.Value, place: fmt.Sprintf(
		"partition %d, offset %d, producer %d, epoch %d, at %s",
		record.Partition, record.Offset, record.ProducerID, record.ProducerEpoch, record.Timestamp.Format(time.StampMilli))}
	if record.Value == nil {
		return r
	}
	structured := false
	for _, h := range record.Headers {
		if attribute, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			r.attributes[attribute] = string(h.Value)
		}
		structured = structured ||
			h.Key == "content-type" && strings.HasPrefix(string(h.Value), "application/cloudevents+json")
	}
	if structured {
		var event map[string]json.RawMessage
		if err := json.Unmarshal(record.Value, &event); err != nil {
			t.Fatal(err)
		}
		r.data = event["data"]
		for name, value := range event {
			r.attributes[name] = strings.Trim(string(value), `"`)
		}
	}
	r.complete()
	return r
}

// readKafka gives all records of a topic, one slice for each partition, in their order.
func readKafka(t *testing.T, addr, topic string) [][]received {
	t.Helper()
	var all [][]received
	for _, partition := range kafka.ReadAll(t, addr, topic) {
		var records []received
		for _, record := range partition {
			records = append(records, receivedFrom(t, record))
		}
		all = append(all, records)
	}
	return all
}

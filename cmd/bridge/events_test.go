package main

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// exampleObject is what the API server sends of the ConfigMap in the example of docs/events.md.
const exampleObject = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings","namespace":"shop",` +
	`"uid":"6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11","resourceVersion":"48213","creationTimestamp":"2026-11-20T12:25:53Z",` +
	`"managedFields":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T12:25:57Z"}]},"data":{"color":"green"}}`

// The example in docs/events.md is what a client reads back from JetStream, with its header names and all.
func TestEventsPageExample(t *testing.T) {
	o, err := object.New([]byte(exampleObject))
	if err != nil {
		t.Fatal(err)
	}
	m, err := (&event.Encoder{Cluster: "prod-eu-1"}).Encode(event.Event{
		Type: event.Updated, Time: time.Date(2026, 11, 20, 12, 25, 57, 861204311, time.UTC),
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Object: o,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := throughJetStream(t, m)
	var text strings.Builder
	fmt.Fprintf(&text, "subject: %s\n", got.Subject())
	headers := maps.Clone(got.Headers())
	show := func(name string) {
		for _, value := range headers[name] {
			fmt.Fprintf(&text, "%s: %s\n", name, value)
		}
		delete(headers, name)
	}
	show(jetstream.MsgIDHeader)
	m.Attributes(func(name, _ string) bool { show("ce-" + name); return true })
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		show(name)
	}
	fmt.Fprintf(&text, "\n%s\n", got.Data())

	const path = "../../docs/events.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := bytes.Cut(page, []byte("\n```text\n"))
	_, after, found := bytes.Cut(rest, []byte("```\n"))
	if !found {
		t.Fatal("the page has no example")
	}
	compareFile(t, path, slices.Concat(before, []byte("\n```text\n"+text.String()+"```\n"), after))
}

// throughJetStream delivers a message by the sink to a server, and reads it back by a plain client.
func throughJetStream(t *testing.T, m *event.Message) jetstream.Msg {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	url := "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(srv.Addr().(*net.TCPAddr).Port))
	sink, err := nats.New(nats.Config{
		URLs: []string{url}, Subject: "k8s.{cluster}.{group}.{resource}.{namespace}.{name}",
		Stream: nats.StreamConfig{Name: "K8S", Create: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close(t.Context())
	if err := sink.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	results := make([]error, 1)
	if sink.Send(t.Context(), []*event.Message{m}, results); results[0] != nil {
		t.Fatal(results[0])
	}
	conn, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(t.Context(), "K8S", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

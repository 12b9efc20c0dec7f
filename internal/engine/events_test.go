package engine

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// exampleObject is what the API server sends of the ConfigMap in the examples of docs/events.md.
const exampleObject = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings","namespace":"shop",` +
	`"uid":"6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11","resourceVersion":"48213","creationTimestamp":"2026-11-20T12:25:53Z",` +
	`"managedFields":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T12:25:57Z","fieldsV1":{"f:data":{"f:color":{}}}}]},"data":{"color":"green"}}`

// deletedObject is the same when it is deleted: with the resourceVersion of the deletion.
var deletedObject = strings.Replace(exampleObject, "48213", "48390", 1)

// The examples in docs/events.md are equal to the output of the code. The examples for NATS have the headers that a
// client reads.
func TestEventsPageExamples(t *testing.T) {
	const path = "../../docs/events.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	update := event.Event{Type: event.Updated, Object: exampleState(t, exampleObject)}
	unseen := exampleState(t, exampleObject)
	unseen.FinalStateUnknown = true
	binary, structured := exampleMessage(
		t,
		&event.Encoder{},
		update,
	), exampleMessage(
		t,
		&event.Encoder{Content: event.ContentStructured},
		update,
	)
	read := throughJetStream(t, binary, structured)
	page = withExample(t, page, "On NATS", "text", headersText(read[0], binary)+string(read[0].Data()))
	page = withExample(t, page, "Structured", "text", headersText(read[1], structured)+wrapped(read[1].Data()))

	change := &event.Encoder{Payload: event.PayloadChange}
	large, err := event.Reduce(exampleMessage(t, change, event.Event{
		Type:   event.Updated,
		Object: exampleState(t, exampleObject),
		Old:    exampleState(t, strings.NewReplacer("48213", "48107", "green", "red").Replace(exampleObject)),
	}), event.Marks{
		Omitted: event.ReasonOversize,
		Size:    1310766,
		Ref:     "nats-object://k8s-claims/prod-eu-1/6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11.48213.2c26b46b68ffc68f",
		Digest:  "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
	})
	if err != nil {
		t.Fatal(err)
	}
	since := time.Date(2026, 11, 20, 12, 25, 50, 0, time.UTC)
	for heading, m := range map[string]*event.Message{
		"An object of the initial list, payload `metadata`": exampleMessage(t, &event.Encoder{Payload: event.PayloadMetadata},
			event.Event{Type: event.Added, Object: exampleState(t, exampleObject), InitialList: true}),
		"A deletion":                   exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Deleted, Object: exampleState(t, deletedObject)}),
		"An audit event":               exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Audit, Audit: exampleAudit()}),
		"A deletion that was not seen": exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Deleted, Object: unseen}),
		"A leave":                      exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Deleted, Object: exampleState(t, exampleObject), LeftAt: "48377"}),
		"A gap": exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Gap, GapInfo: &event.GapInfo{
			Resource: "configmaps", From: "48213", To: "51006", Reason: event.ReasonRelist, Message: "the watch could not be continued: too old resource version",
		}}),
		"The end of an initial list": exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Synced, SyncedInfo: &event.SyncedInfo{
			Resource: "configmaps", ResourceVersion: "48377", Objects: 112,
		}}),
		"The end of a resync": exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Synced, SyncedInfo: &event.SyncedInfo{
			Resource: "configmaps", ResourceVersion: "51377", Objects: 97, Resync: true, Since: &since,
		}}),
		"Progress of a resource": exampleMessage(t, &event.Encoder{}, event.Event{Type: event.Progress, ProgressInfo: &event.ProgressInfo{
			Resource: "configmaps", ResourceVersion: "51377", AsOf: time.Date(2026, 11, 20, 12, 25, 22, 104201733, time.UTC),
		}}),
		"A change that was too large, payload `change`": large,
	} {
		page = withExample(t, page, heading, "json", wrapped(m.AppendStructured(nil)))
	}
	compareFile(t, path, page)
}

// exampleState is an object with its managedFields, as the payload "change" wants it.
func exampleState(t *testing.T, raw string) *object.Object {
	t.Helper()
	list := &object.List{ManagedFields: true}
	_, _, err := object.NegotiatedSerializer().SupportedMediaTypes()[0].Serializer.Decode(
		[]byte(`{"kind":"List","items":[`+raw+`]}`),
		nil,
		list,
	)
	if err != nil || len(list.Items) != 1 {
		t.Fatal(err)
	}
	return list.Items[0]
}

func exampleMessage(t *testing.T, e *event.Encoder, ev event.Event) *event.Message {
	t.Helper()
	e.Cluster = "prod-eu-1"
	ev.Time = time.Date(2026, 11, 20, 12, 25, 57, 861204311, time.UTC)
	ev.Resource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	m, err := e.Encode(ev)
	if err != nil {
		t.Fatal(err)
	}
	m.Epoch, m.ClusterUID = "mwt0zse6", "9d3b6a1e-52c4-4f0a-8a57-1c0f6f4b2e90"
	return m
}

// headersText is a message's subject and its headers, attributes in their order.
func headersText(got jetstream.Msg, m *event.Message) string {
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
	return text.String() + "\n"
}

// wrapped breaks the members of a JSON object, and the members of its data, into lines that fit on a page.
func wrapped(document []byte) string {
	const width = 120
	text, line := "", ""
	w := jsonscan.Open(document, 0, '{')
	for key, value := range w.All {
		member := strconv.Quote(string(key)) + ": " + string(value)
		switch {
		case line == "":
			line = "  " + member
		case len(line)+len(member) > width || string(key) == "data":
			text += line + ",\n"
			line = "  " + member
		default:
			line += ", " + member
		}
	}
	return "{\n" + text + line + "\n}"
}

// withExample is the page with another text in the first block below a heading.
func withExample(t *testing.T, page []byte, heading, kind, text string) []byte {
	t.Helper()
	open := "\n```" + kind + "\n"
	at := bytes.Index(page, []byte("\n### "+heading+"\n"))
	if at < 0 {
		t.Fatalf("the page has no section %q", heading)
	}
	before, rest, _ := bytes.Cut(page[at:], []byte(open))
	_, after, found := bytes.Cut(rest, []byte("```\n"))
	if !found || bytes.Contains(before[1:], []byte("\n#")) {
		t.Fatalf("the section %q has no example", heading)
	}
	return slices.Concat(page[:at], before, []byte(open+text+"\n```\n"), after)
}

// throughJetStream delivers messages by the sink to one server each, and reads them back by a plain client: as
// repetitions of each other a server would take one of them.
func throughJetStream(t *testing.T, messages ...*event.Message) (read []jetstream.Msg) {
	t.Helper()
	for _, m := range messages {
		read = append(read, oneThroughJetStream(t, m))
	}
	return read
}

func oneThroughJetStream(t *testing.T, m *event.Message) jetstream.Msg {
	t.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}
	_, stop := natsserver.Start(t, opts)
	defer stop()
	url := natsserver.ClientURL(opts)
	sink := nats.New(nats.Config{
		Servers: nats.Servers{URLs: []string{url}}, Subject: "k8s.{cluster}.{group}.{resource}.{namespace}.{name}",
		Stream: nats.StreamConfig{Name: "K8S", Create: true},
	})
	defer sink.Close(t.Context())
	sink.Resume(sinks.Resume{Writer: "k3v7q2ma/live", Store: func(sinks.Positions) error { return nil }})
	if err := sink.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	results := make([]error, 1)
	if sink.Send(t.Context(), []*event.Message{m}, results); results[0] != nil {
		t.Fatal(results[0])
	}
	js := natsserver.Connect(t, url)
	defer js.Conn().Close()
	consumer, err := js.OrderedConsumer(t.Context(), "K8S", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := consumer.Next(jetstream.FetchMaxWait(2 * time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// exampleAudit is what an API server sends about the request that deletes the ConfigMap in the examples.
func exampleAudit() *event.AuditInfo {
	const id, at = "0c4e3c6a-7f5d-4a58-9a41-6b1f9c1f2d77", "2026-11-20T12:25:57.859302Z"
	return &event.AuditInfo{
		ID: id + ".ResponseComplete." + at,
		Object: redact.Reference{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "shop", Name: "settings",
		},
		Raw: []byte(`{"level":"Metadata","auditID":"` + id + `","stage":"ResponseComplete",` +
			`"requestURI":"/api/v1/namespaces/shop/configmaps/settings","verb":"delete",` +
			`"user":{"username":"alice","groups":["system:authenticated"]},"sourceIPs":["10.0.0.7"],"userAgent":"kubectl/v1.36.1",` +
			`"objectRef":{"resource":"configmaps","namespace":"shop","name":"settings","apiVersion":"v1"},` +
			`"responseStatus":{"metadata":{},"status":"Success","details":{"name":"settings","kind":"configmaps",` +
			`"uid":"6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11"},"code":200},"requestReceivedTimestamp":"` + at + `",` +
			`"stageTimestamp":"2026-11-20T12:25:57.861204Z"}`),
	}
}

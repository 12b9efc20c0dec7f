package kafka

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// The example in docs/events.md is equal to the record that an independent client reads from Kafka.
func TestEventsPageExample(t *testing.T) {
	broker := testkafka.ForTest(t)
	o, err := object.New([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings","namespace":"shop",` +
		`"uid":"6f0c7a52-1d0e-4c77-9a3c-0e6f5f9a5a11","resourceVersion":"48213","creationTimestamp":"2026-11-20T12:25:53Z",` +
		`"managedFields":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T12:25:57Z"}]},"data":{"color":"green"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const topicTemplate = "k8s.{resource}"
	standard := defaults()
	key := standard.KeyTemplate()
	m, err := (&event.Encoder{Cluster: "prod-eu-1", PartitionKey: key}).Encode(
		event.Event{
			Type: event.Updated, Time: time.Date(2026, 11, 20, 12, 25, 57, 861204311, time.UTC),
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Object: o,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	m.ClusterUID, m.Epoch = "9d3b6a1e-52c4-4f0a-8a57-1c0f6f4b2e90", "mwt0zse6"
	testkafka.CreateTopic(t, broker.Addr(), "k8s.configmaps", 3, nil)
	sink := newSink(t, Config{Brokers: []string{broker.Addr()}, Topic: topicTemplate})
	sink.Resume(sinks.Resume{Writer: "q3x7v1mb/kafka", Store: new(stored).add})
	if err := sink.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	sendAll(t, sink, m)
	var text strings.Builder
	for _, partition := range testkafka.ReadAll(t, broker.Addr(), "k8s.configmaps") {
		for _, r := range partition {
			fmt.Fprintf(&text, "topic: %s\nkey: %s\n", r.Topic, r.Key)
			for _, h := range r.Headers {
				fmt.Fprintf(&text, "%s: %s\n", h.Key, h.Value)
			}
			fmt.Fprintf(&text, "\n%s\n", r.Value)
		}
	}
	page, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### On Kafka\n")
	before, section, _ := strings.Cut(section, "```text\n")
	example, _, found := strings.Cut(section, "```\n")
	if !found || !strings.Contains(before, "`"+topicTemplate+"`") || !strings.Contains(before, "`"+standard.Key+"`") {
		t.Errorf("the page has no example, or not these templates: %s", before)
	}
	if example != text.String() {
		t.Errorf("the page has\n%s\nthere is\n%s", example, text.String())
	}
}

package kafka

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// kafkaMessage shows a record to the CloudEvents SDK as the Kafka protocol binding 1.0 describes it.
type kafkaMessage struct{ *kgo.Record }

func (m kafkaMessage) ReadEncoding() binding.Encoding {
	if strings.HasPrefix(header(m.Record, "content-type"), "application/cloudevents") {
		return binding.EncodingStructured
	}
	return binding.EncodingBinary
}

func (m kafkaMessage) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.ReadEncoding() != binding.EncodingStructured {
		return binding.ErrNotStructured
	}
	f := format.Lookup(header(m.Record, "content-type"))
	if f == nil {
		return fmt.Errorf("no format for the content type %q", header(m.Record, "content-type"))
	}
	return w.SetStructuredEvent(ctx, f, bytes.NewReader(m.Value))
}

func (m kafkaMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	if m.ReadEncoding() != binding.EncodingBinary {
		return binding.ErrNotBinary
	}
	version := spec.WithPrefix("ce_").Version(header(m.Record, "ce_specversion"))
	if version == nil {
		return fmt.Errorf("no spec version in %v", m.Headers)
	}
	seen := map[string]bool{}
	for _, h := range m.Headers {
		if seen[h.Key] {
			return fmt.Errorf("the header %s is there twice", h.Key)
		}
		seen[h.Key] = true
		var err error
		attribute := version.Attribute(h.Key)
		if h.Key == "content-type" {
			attribute = version.AttributeFromKind(spec.DataContentType)
		}
		name, isAttribute := strings.CutPrefix(h.Key, "ce_")
		switch {
		case attribute != nil:
			err = w.SetAttribute(attribute, string(h.Value))
		case isAttribute:
			err = w.SetExtension(name, string(h.Value))
		default:
			err = fmt.Errorf("no attribute")
		}
		if err != nil {
			return fmt.Errorf("header %s: %w", h.Key, err)
		}
	}
	return w.SetData(bytes.NewReader(m.Value))
}

// GetAttribute and GetExtension are for the SDK's transformers, of which the test has none.
func (m kafkaMessage) GetAttribute(spec.Kind) (spec.Attribute, any) { return nil, nil }
func (m kafkaMessage) GetExtension(string) any                      { return nil }

func (m kafkaMessage) Finish(error) error { return nil }

// TestCloudEventsSDK: the official SDK reads the event from both contents.
func TestCloudEventsSDK(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "cloudevents", 1, nil)
	s := connected(t, Config{Brokers: []string{broker.Addr()}, Topic: "cloudevents"})

	m := sinktest.Message(`system:odd "name"/ü%`, 1, 400)
	m.Type, m.FinalStateUnknown, m.Payload = event.Deleted, true, event.PayloadDebezium
	structured := *m
	structured.Structured = true
	gap := sinktest.Gap()
	mustSend(t, s, m, &structured, gap)

	records := testkafka.ReadAll(t, broker.Addr(), "cloudevents")[0]
	for i, sent := range []*event.Message{m, &structured, gap} {
		ev, err := binding.ToEvent(t.Context(), kafkaMessage{records[i]})
		if err != nil {
			t.Fatalf("record %d is no CloudEvent: %v", i, err)
		}
		if err := ev.Validate(); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		want := sent.Headers
		if sent.Structured {
			want = sent.Attributes
		}
		if diff := cmp.Diff(maps.Collect(want), attributesOfEvent(ev)); diff != "" {
			t.Errorf("record %d (-sent +read):\n%s", i, diff)
		}
		if string(ev.Data()) != string(sent.Data) {
			t.Errorf("record %d: data %.100q", i, ev.Data())
		}
		if string(records[i].Key) != sent.PartitionKey {
			t.Errorf("record %d: key %q", i, records[i].Key)
		}
	}
}

func attributesOfEvent(ev *ce.Event) map[string]string {
	all := map[string]string{
		"specversion": ev.SpecVersion(), "id": ev.ID(), "source": ev.Source(), "type": ev.Type(), "subject": ev.Subject(),
		"time": ev.Time().Format(time.RFC3339Nano), "datacontenttype": ev.DataContentType(),
	}
	if s := ev.DataSchema(); s != "" {
		all["dataschema"] = s
	}
	for name, value := range ev.Extensions() {
		all[name] = fmt.Sprint(value)
	}
	return all
}

package nats_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// natsMessage shows a NATS message to the CloudEvents SDK, as the NATS protocol binding describes it: with a
// content-type of application/cloudevents… it is structured, otherwise binary with percent-encoded ce- headers.
type natsMessage struct{ msg jetstream.Msg }

var specs = spec.WithPrefix("ce-")

func (m natsMessage) ReadEncoding() binding.Encoding {
	if strings.HasPrefix(strings.ToLower(m.msg.Headers().Get("content-type")), "application/cloudevents") {
		return binding.EncodingStructured
	}
	return binding.EncodingBinary
}

func (m natsMessage) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.ReadEncoding() != binding.EncodingStructured {
		return binding.ErrNotStructured
	}
	f := format.Lookup(m.msg.Headers().Get("content-type"))
	if f == nil {
		return fmt.Errorf("no format for content type %q", m.msg.Headers().Get("content-type"))
	}
	return w.SetStructuredEvent(ctx, f, bytes.NewReader(m.msg.Data()))
}

func (m natsMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	if m.ReadEncoding() != binding.EncodingBinary {
		return binding.ErrNotBinary
	}
	version := specs.Version(m.msg.Headers().Get("ce-specversion"))
	if version == nil {
		return fmt.Errorf("no spec version in %v", m.msg.Headers())
	}
	for name, values := range m.msg.Headers() {
		attribute, ok := strings.CutPrefix(name, "ce-")
		if !ok {
			continue
		}
		if len(values) != 1 {
			return fmt.Errorf("header %s has %d values", name, len(values))
		}
		for _, c := range []byte(values[0]) {
			if c <= ' ' || c >= 0x7f || c == '"' {
				return fmt.Errorf("header %s holds %q, which must be percent-encoded", name, values[0])
			}
		}
		value, err := url.PathUnescape(values[0])
		if err != nil {
			return err
		}
		if a := version.Attribute(name); a != nil {
			err = w.SetAttribute(a, value)
		} else {
			err = w.SetExtension(attribute, value)
		}
		if err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return w.SetData(bytes.NewReader(m.msg.Data()))
}

// GetAttribute and GetExtension are for the SDK's transformers, of which the tests have none.
func (m natsMessage) GetAttribute(spec.Kind) (spec.Attribute, any) { return nil, nil }
func (m natsMessage) GetExtension(string) any                      { return nil }

func (m natsMessage) Finish(error) error { return nil }

func cloudEvent(t testing.TB, m jetstream.Msg) *ce.Event {
	t.Helper()
	ev, err := binding.ToEvent(t.Context(), natsMessage{m})
	if err != nil {
		t.Fatalf("message at %s is no CloudEvent: %v", m.Subject(), err)
	}
	if err := ev.Validate(); err != nil {
		t.Fatalf("message at %s: %v", m.Subject(), err)
	}
	return ev
}

// attributesOf gives the event's attributes as strings, and its data.
func attributesOf(ev *ce.Event) (map[string]string, []byte) {
	out := map[string]string{
		"specversion": ev.SpecVersion(), "id": ev.ID(), "source": ev.Source(), "type": ev.Type(),
		"time": ev.Time().Format(time.RFC3339Nano), "datacontenttype": ev.DataContentType(),
	}
	if s := ev.Subject(); s != "" {
		out["subject"] = s
	}
	if s := ev.DataSchema(); s != "" {
		out["dataschema"] = s
	}
	for name, value := range ev.Extensions() {
		out[name] = fmt.Sprint(value)
	}
	return out, ev.Data()
}

// The SDK reads the event from both contents.
func TestCloudEventsSDKReadsBothContents(t *testing.T) {
	b := newBroker(t)
	sink := connect(t, b)
	binary, structured := sinktest.Message("odd name/ü%", 1, 400), sinktest.Message("odd name/ü%", 1, 400)
	structured.Structured = true
	structured.ID += "s" // or the stream would drop it
	binary.Payload, structured.Payload = event.PayloadChange, event.PayloadChange
	plain := sinktest.Message("b", 1, 100)
	plain.Identity.Manager = ""
	send(t, sink, binary, structured, plain, sinktest.Message("c", 1, 100))
	messages := b.messages(t)
	if len(messages) != 4 {
		t.Fatalf("%d messages, want 4", len(messages))
	}
	for i, m := range messages {
		ev := cloudEvent(t, m)
		attributes, data := attributesOf(ev)
		id := attributes["id"]
		if got := m.Headers().Get("Nats-Msg-Id"); got != "test/"+id {
			t.Errorf("Nats-Msg-Id %q of event %q", got, id)
		}
		if got := m.Headers().Get("Nats-Expected-Stream"); got != streamName {
			t.Errorf("Nats-Expected-Stream %q", got)
		}
		want := binary
		switch id {
		case structured.ID:
			want = structured
			if n := len(m.Headers()); n != 3 {
				t.Errorf("structured event has headers %v, want content-type and the stream's two", m.Headers())
			}
		case plain.ID:
			want = plain
		case "uid-c.1001":
			want = sinktest.Message("c", 1, 100)
		}
		yield := want.Headers
		if want.Structured {
			yield = want.Attributes
		}
		if diff := cmpDiff(maps.Collect(yield), attributes); diff != "" {
			t.Errorf("message %d, attributes (-sent +read):\n%s", i, diff)
		}
		if string(data) != string(want.Data) {
			t.Errorf("message %d: data %q, want %q", i, data, want.Data)
		}
	}
}

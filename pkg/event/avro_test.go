package event

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"

	"github.com/deltabridge/deltabridge/docs/schemas"
)

// avroMessages returns messages with all attributes that the bridge sends.
func avroMessages(t testing.TB) (all []*Message) {
	t.Helper()
	key, err := ParseTemplate("{resource}/{namespace}/{name}", EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []Payload{PayloadObject, PayloadChange} {
		e := &Encoder{Cluster: "prod", Payload: payload, PartitionKey: key}
		for _, ev := range schemaEvents(t) {
			m := encode(t, e, ev)
			m.ClusterUID, m.Time = "k1", time.Date(2026, 11, 20, 12, 25, 57, 861_204_311, time.UTC)
			all = append(all, m)
			if ev.Type.IsControl() {
				continue
			}
			reduced, err := Reduce(m, Marks{Omitted: ReasonOversize, Size: 1 << 40, Ref: "r", Digest: "d"})
			if err == nil {
				reduced.Context = &testContext
				all = append(all, reduced)
			}
		}
	}
	return all
}

// The published schema is all that a reader requires for the attributes and the data of each event.
func TestAvro(t *testing.T) {
	schema, err := avro.Parse(schemas.Avro())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range avroMessages(t) {
		var fields map[string]any
		rest, err := schema.Decode(m.AppendAvro(nil), &fields)
		if err != nil || len(rest) != 0 {
			t.Fatalf("%s: %v, %d bytes left", m.ID, err, len(rest))
		}
		got := map[string]string{}
		for name, value := range fields {
			switch value := value.(type) {
			case string:
				got[name] = value
			case int64:
				got[name] = strconv.FormatInt(value, 10)
			case time.Time:
				got[name] = value.UTC().Format(time.RFC3339Nano)
			case bool:
				if value {
					got[name] = "true"
				}
			case nil:
			default:
				t.Errorf("%s is a %T", name, value)
			}
			seen[name] = seen[name] || got[name] != ""
		}
		want := maps.Collect(m.Attributes)
		for _, left := range []string{"specversion", "datacontenttype", "partitionkey"} {
			delete(want, left)
		}
		want["time"], want["data"] = "2026-11-20T12:25:57.861Z", string(m.Data)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-event +record):\n%s", m.ID, diff)
		}
	}
	for name, found := range seen {
		if !found {
			t.Errorf("no event has %s", name)
		}
	}
}

// The bridge reads its own records, also those of a later version, which has more fields.
func TestParseAvro(t *testing.T) {
	for _, m := range avroMessages(t) {
		got, err := ParseAvro(append(m.AppendAvro(nil), 2, 2, 'x'))
		if err != nil {
			t.Fatal(err)
		}
		want := Received{Attributes: maps.Collect(m.Attributes), Data: m.Data}
		delete(want.Attributes, "partitionkey")
		want.Attributes["time"] = "2026-11-20T12:25:57.861Z"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", m.ID, diff)
		}
	}
}

// What is not a record is rejected, wherever it ends.
func TestParseAvroRejects(t *testing.T) {
	record := avroMessages(t)[0].AppendAvro(nil)
	for n := range record {
		if got, err := ParseAvro(record[:n]); err == nil {
			t.Errorf("the first %d bytes are %v", n, got)
		}
	}
	for _, text := range []string{"\x01", `{"kind":"Pod"}`, string(make([]byte, 100)), "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01x"} {
		if got, err := ParseAvro([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func BenchmarkAppendAvro(b *testing.B) {
	m := avroMessages(b)[0]
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = m.AppendAvro(buf[:0])
	}
}

func BenchmarkAppendStructured(b *testing.B) {
	m := avroMessages(b)[0]
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = m.AppendStructured(buf[:0])
	}
}

package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// plainRecord is a record as a reader sees it.
type plainRecord struct {
	Offset  int64
	Millis  int64
	Key     string
	Value   string
	IsNull  bool
	Headers map[string]string
}

// decode reads a record set with kafka-go's decoder, which checks sizes and checksum.
func decode(t testing.TB, set []byte) (records []plainRecord, attributes protocol.Attributes) {
	t.Helper()
	var rs protocol.RecordSet
	if _, err := rs.ReadFrom(bytes.NewReader(set)); err != nil {
		t.Fatalf("decoding the record set: %v", err)
	}
	for rs.Records != nil {
		r, err := rs.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p := plainRecord{Offset: r.Offset, Millis: r.Time.UnixMilli(), Headers: map[string]string{}}
		p.Key = readBytes(t, r.Key)
		p.IsNull = r.Value == nil
		p.Value = readBytes(t, r.Value)
		for _, h := range r.Headers {
			p.Headers[h.Key] = string(h.Value)
		}
		records = append(records, p)
	}
	return records, rs.Attributes
}

func readBytes(t testing.TB, b protocol.Bytes) string {
	t.Helper()
	if b == nil {
		return ""
	}
	text, err := protocol.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBatchReadsBack(t *testing.T) {
	late := change(event.Added, "b", 2)
	late.Time = testTime.Add(-100 * time.Hour) // of no influence on the record's timestamp
	structured := change(event.Updated, "c", 3)
	structured.Structured = true
	deleted := change(event.Deleted, "a", 4)
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			var b batch
			b.Reset(testTime)
			for _, m := range []*event.Message{change(event.Added, "a", 1), late, structured, deleted} {
				if !b.add(m, m.Type == event.Deleted, defaultBatchBytes) {
					t.Fatal("the batch takes no more")
				}
			}
			codec := codecOf(compression)
			set, err := b.encode(codec, producer{id: 7, epoch: 2, sequence: 40})
			if err != nil {
				t.Fatal(err)
			}
			records, attributes := decode(t, set)
			if got := attributes.Compression().String(); got != compression && compression != "none" {
				t.Errorf("compressed with %s", got)
			}
			ms := testTime.UnixMilli()
			want := []plainRecord{
				{
					0,
					ms,
					"/pods/default/a",
					string(change(event.Added, "a", 1).Data),
					false,
					attributesOf(change(event.Added, "a", 1)),
				},
				{1, ms, "/pods/default/b", string(late.Data), false, attributesOf(late)},
				{
					2,
					ms,
					"/pods/default/c",
					string(structured.Body()),
					false,
					map[string]string{"content-type": "application/cloudevents+json; charset=UTF-8"},
				},
				{3, ms, "/pods/default/a", string(deleted.Data), false, attributesOf(deleted)},
				{4, ms, "/pods/default/a", "", true, map[string]string{}},
			}
			if diff := cmp.Diff(want, records); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// attributesOf is what the headers must be, by the binding.
func attributesOf(m *event.Message) map[string]string {
	headers := map[string]string{"content-type": "application/json"}
	for name, value := range m.Headers {
		if name != "datacontenttype" {
			headers["ce_"+name] = value
		}
	}
	return headers
}

// TestPreviewShowsTheRecord: a preview has the headers and the size of the record that is sent.
func TestPreviewShowsTheRecord(t *testing.T) {
	structured := change(event.Updated, "a", 1)
	structured.Structured = true
	for _, m := range []*event.Message{change(event.Added, "a", 1), change(event.Deleted, "a", 2), structured} {
		s := newSink(t, Config{Brokers: []string{"127.0.0.1:1"}, Compression: "none", Tombstones: true})
		s.Resume(sinks.Resume{Writer: "i1/audit"})
		p, err := s.Preview(t.Context(), m, false)
		if err != nil {
			t.Fatal(err)
		}
		var b batch
		b.Reset(testTime)
		b.writer = "i1/audit"
		b.add(m, m.Type == event.Deleted, 0)
		set, err := b.encode(nil, producer{})
		if err != nil {
			t.Fatal(err)
		}
		records, _ := decode(t, set)
		got := map[string]string{}
		for _, h := range p.Headers {
			got[h.Name] = h.Value
		}
		if diff := cmp.Diff(records[0].Headers, got); diff != "" {
			t.Errorf("(-sent +shown):\n%s", diff)
		}
		if p.Size != int64(len(set)-wire.SizePrefix) || p.Tombstone != (len(records) == 2) {
			t.Errorf("%d bytes, tombstone %t; sent are %d bytes, %d records", p.Size, p.Tombstone, len(set), len(records))
		}
	}
}

// TestRecordsAreRecognized: whatever a record contains, its headers say who wrote it and which event it is.
func TestRecordsAreRecognized(t *testing.T) {
	refused := change(event.Gap, "a", 5)
	refused.GapInfo = &event.GapInfo{Deletion: removed("a", 5)}
	for _, structured := range []bool{false, true} {
		for _, data := range []string{`{"kind":"Pod"}`, `{"patch":[]}`, `{"metadata":{}}`, ""} {
			var b batch
			b.Reset(testTime)
			b.writer = "i1/audit"
			for _, m := range []*event.Message{change(event.Added, "a", 5), removed("a", 5), refused} {
				m.Structured, m.Data = structured, []byte(data)
				b.add(m, m.Type != event.Added, defaultBatchBytes)
			}
			set, err := b.encode(nil, producer{})
			if err != nil {
				t.Fatal(err)
			}
			records, _ := decode(t, set)
			var got []string
			for _, r := range records {
				h := r.Headers
				got = append(got, fmt.Sprintln(h[sinks.MarkHeader], h["ce_id"], h["ce_uid"], h["ce_resourceversion"], r.IsNull))
			}
			const deletion = "i1/audit u-a.deleted u-a 5 "
			want := []string{
				"i1/audit u-a.5 u-a 5 false\n", deletion + "false\n", deletion + "true\n", "i1/audit u-a.5 u-a 5 false\n",
				deletion + "true\n",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("structured %t, data %s (-want +got):\n%s", structured, data, diff)
			}
		}
	}
}

func TestBatchKeepsItsLimit(t *testing.T) {
	var b batch
	b.Reset(testTime)
	m := padded(change(event.Added, "a", 1), 3300)
	n := 0
	for b.add(m, true, 10_000) {
		n++
	}
	if n != 2 || b.Size() > 10_000 || b.Records() != 4 {
		t.Errorf("%d messages, %d bytes, %d records", n, b.Size(), b.Records())
	}
	before := b.Size()
	set, err := b.encode(nil, producer{-1, -1, -1})
	if err != nil {
		t.Fatal(err)
	}
	if len(set) != before+wire.SizePrefix {
		t.Errorf("the encoded batch has %d bytes, its size was %d", len(set)-wire.SizePrefix, before)
	}
	if records, _ := decode(t, set); len(records) != 4 {
		t.Errorf("%d records", len(records))
	}

	b.Reset(testTime)
	if !b.add(padded(m, 50_000), false, 10_000) {
		t.Error("the first message is not taken")
	}
}

func TestBatchIsNeverLargerForBeingCompressed(t *testing.T) {
	var b batch
	b.Reset(testTime)
	m := change(event.Added, "a", 1)
	noise := make([]byte, 2000)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	m.Data = noise
	b.add(m, false, defaultBatchBytes)
	gzip := codecOf("gzip")
	set, err := b.encode(gzip, producer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(set)-wire.SizePrefix > b.Size() {
		t.Errorf("%d bytes, uncompressed %d", len(set)-wire.SizePrefix, b.Size())
	}
}

// FuzzBatch compares the records that are read from a batch with the records that were added, for arbitrary bytes in
// keys, values and attributes.
func FuzzBatch(f *testing.F) {
	f.Add("key", []byte("value"), "name", uint16(100))
	f.Add("", []byte{}, "", uint16(8000))
	for _, length := range []int{0, 1, 63, 64, 8191, 8192} { // where the lengths' own length changes
		f.Add(strings.Repeat("k", length), bytes.Repeat([]byte("v"), length), strings.Repeat("n", length), uint16(0))
		f.Add("key", []byte{}, "name", uint16(length))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte, name string, pad uint16) {
		first := change(event.Updated, "a", 1)
		second := *first
		second.PartitionKey, second.Identity.Name = key, name
		second.Data = append(value, make([]byte, pad)...)
		var b batch
		b.Reset(testTime)
		b.add(first, false, 1<<30)
		b.add(&second, true, 1<<30)
		codec := codecOf("snappy")
		set, err := b.encode(codec, producer{1, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := decode(t, set)
		want := []plainRecord{
			{0, testTime.UnixMilli(), first.PartitionKey, string(first.Data), false, attributesOf(first)},
			{1, testTime.UnixMilli(), key, string(second.Data), false, attributesOf(&second)},
			{2, testTime.UnixMilli(), key, "", true, map[string]string{}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestPartitionIsTheJavaClients: the numbers were printed by BuiltInPartitioner.partitionForKey of kafka-clients 4.3.1.
func TestPartitionIsTheJavaClients(t *testing.T) {
	one, six, fifty, million := topicOf(1), topicOf(6), topicOf(50), topicOf(1000003)
	for _, c := range []struct {
		key                  string
		of6, of50, of1000003 int
	}{
		{"/pods/default/web-0", 3, 9, 886224},
		{"apps/deployments/team-a/api", 3, 23, 976177},
		{"/nodes//node-1", 4, 48, 633816},
		{"/pods//_gap", 2, 42, 668352},
		{"rbac.authorization.k8s.io/clusterroles//cluster-admin", 3, 25, 281466},
		{"example.com/widägets/nämespace/日本", 1, 13, 958370},
		{"a", 4, 24, 100772},
		{"ab", 2, 34, 154486},
		{"abc", 3, 7, 468670},
		{"abcd", 2, 0, 831631},
	} {
		for top, want := range map[*topic]int{one: 0, six: c.of6, fifty: c.of50, million: c.of1000003} {
			if got := partitionIn(c.key, top); got != want {
				t.Errorf("partition of %q among %d: %d, the Java client's is %d", c.key, len(top.ids), got, want)
			}
		}
	}
}

// FuzzPartition compares with franz-go's implementation of the same rule.
func FuzzPartition(f *testing.F) {
	f.Add("/pods/default/web-0", uint8(6))
	topicPartitioner := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	f.Fuzz(func(t *testing.T, key string, n uint8) {
		if key == "" || n == 0 {
			return
		}
		want := topicPartitioner.Partition(&kgo.Record{Key: []byte(key)}, int(n))
		if got := partitionFor(key, int(n)); got != want {
			t.Errorf("partition of %q among %d: %d, want %d", key, n, got, want)
		}
	})
}

// topicOf returns a topic with n partitions.
func topicOf(n int) *topic {
	top := newTopic("t")
	for i := range n {
		top.ids = append(top.ids, i)
	}
	top.partitions = make([]*partition, n)
	backing := make([]partition, n)
	for i := range backing {
		backing[i].id = int32(i)
		top.partitions[i] = &backing[i]
	}
	return top
}

// partitionFor returns the partition among n.
func partitionFor(key string, n int) int { return partitionIn(key, topicOf(n)) }

// partitionIn asks the sink's own code for the partition.
func partitionIn(key string, top *topic) int {
	balancer := kafkago.Murmur2Balancer{Consistent: true}
	return int(top.partitionOf(&balancer, []byte(key)).id)
}

package kafkaread

import (
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// What compaction leaves behind delays the reading for no longer than it takes to step over it.
func TestReadOverHoles(t *testing.T) {
	p := &partition{Partition: wire.Partition{Topic: "t"}, next: 5, end: 9}
	for p.isOpen() {
		before := p.next
		records := protocol.NewRecordReader(protocol.Record{Offset: 4})
		if p.next == 7 {
			records = protocol.NewRecordReader(protocol.Record{Offset: 8}, protocol.Record{Offset: 9})
		}
		found := &fetch.ResponsePartition{
			HighWatermark: 9, RecordSet: protocol.RecordSet{Version: 2, Records: records},
		}
		if came, err := p.take(found); err != nil || !came || p.next <= before {
			t.Fatalf("at %d, %v, %v", p.next, came, err)
		}
	}
	if len(p.queue) != 1 || p.next != 10 {
		t.Errorf("%d records, at %d", len(p.queue), p.next)
	}
}

// A partition from which retention deleted what is to be read next is read from its first record on.
func TestReadDeletedOffset(t *testing.T) {
	fake, client := newFake(t, kfake.SeedTopics(1, "t"))
	p := &partition{Partition: wire.Partition{Topic: "t", Leader: fake.ListenAddrs()[0]}, next: 5, end: 9}
	if came, err := p.fetch(t.Context(), client); err != nil || !came || p.next != 0 || p.end != 0 {
		t.Errorf("at %d of %d, %v, %v", p.next, p.end, came, err)
	}
}

package kafkaread

import (
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// What compaction leaves behind delays the reading for no longer than it takes to step over it.
func TestReadOverHoles(t *testing.T) {
	p := &partition{topic: "t", next: 5, end: 9}
	for p.isOpen() {
		before := p.next
		records := protocol.NewRecordReader(protocol.Record{Offset: 4})
		if p.next == 7 {
			records = protocol.NewRecordReader(protocol.Record{Offset: 8}, protocol.Record{Offset: 9})
		}
		found := &fetch.ResponsePartition{
			HighWatermark: 9, RecordSet: protocol.RecordSet{Version: 2, Records: records},
		}
		if came, err := p.take(nil, found); err != nil || !came || p.next <= before {
			t.Fatalf("at %d, %v, %v", p.next, came, err)
		}
	}
	if len(p.queue) != 1 || p.next != 10 {
		t.Errorf("%d records, at %d", len(p.queue), p.next)
	}
	if _, err := p.take(nil, &fetch.ResponsePartition{ErrorCode: 1}); err != nil || !p.truncated {
		t.Errorf("what was deleted meanwhile: %v, %v", p.truncated, err)
	}
}

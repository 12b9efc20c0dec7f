package kafkaread

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const fetchBytes = 4 << 20 // the maximum size of a fetch response for one partition

// The headers of a record in binary mode. An attribute is sent in the header with HeaderPrefix and its name, except
// AttrContentType, which is sent in HeaderContentType.
const (
	HeaderPrefix      = "ce_"
	HeaderContentType = "content-type"
	AttrContentType   = "datacontenttype"
)

// partition is the state of reading one partition.
type partition struct {
	wire.Partition
	next, end int64              // the offset of the next fetch, and the offset after the last record to read
	follow    bool               // reports whether end advances when records are written
	queue     []*diagnose.Record // fetched records that are not handled yet
}

func (p *partition) isOpen() bool { return p.next < p.end }

func (p *partition) place() string { return fmt.Sprintf("%s/%d", p.Topic, p.ID) }

// begin determines the first and the last offset to read.
func (p *partition) begin(ctx context.Context, c *wire.Client, since time.Time) (err error) {
	at := int64(wire.Earliest)
	if !since.IsZero() {
		at = since.UnixMilli()
	}
	if p.end, err = p.Offset(ctx, c, wire.Latest); err != nil {
		return err
	}
	if p.next, err = p.Offset(ctx, c, at); p.next < 0 { // All records are older than since.
		p.next = p.end
	}
	return err
}

// fetch adds more records to the partition's queue. It reports whether it made progress.
func (p *partition) fetch(ctx context.Context, c *wire.Client) (came bool, err error) {
	found, err := p.Fetch(ctx, c, p.next, fetchBytes, 0)
	if errors.Is(err, kafkago.OffsetOutOfRange) { // Retention deleted the record since the last fetch.
		return true, p.begin(ctx, c, time.Time{})
	}
	if err != nil {
		return false, err
	}
	return p.take(found)
}

// take adds the fetched records to the queue. It reports whether it made progress.
func (p *partition) take(found *fetch.ResponsePartition) (came bool, err error) {
	if p.follow {
		p.end = max(p.end, found.HighWatermark)
	}
	before := p.next
	for record, err := range wire.Records(found.RecordSet.Records, p.next) {
		if err != nil {
			return false, fmt.Errorf("read topic %s: %w", p.Topic, err)
		}
		if p.next = record.Offset + 1; record.Offset >= p.end {
			continue
		}
		r, err := p.recordOf(record)
		if err != nil {
			return false, fmt.Errorf("read topic %s: %w", p.Topic, err)
		}
		p.queue = append(p.queue, r)
	}
	if p.next == before && p.isOpen() && found.RecordSet.Version > 0 {
		p.next++ // Skip the rest of a batch whose records were removed by compaction.
	}
	return p.next > before, nil
}

// recordOf copies a record, because kafka-go reuses the record's buffer.
func (p *partition) recordOf(record *protocol.Record) (*diagnose.Record, error) {
	key, err := protocol.ReadAll(record.Key)
	value, valueErr := protocol.ReadAll(record.Value)
	if err := errors.Join(err, valueErr); err != nil {
		return nil, err
	}
	out := &diagnose.Record{
		Place: fmt.Sprintf("%s #%d", p.place(), record.Offset), Key: string(key), Stored: record.Time,
	}
	if value == nil {
		return out, nil // a tombstone
	}
	out.Data, out.Attributes = value, make(map[string]string, len(record.Headers))
	for _, h := range record.Headers {
		if name, ok := strings.CutPrefix(h.Key, HeaderPrefix); ok {
			out.Attributes[name] = string(h.Value)
		} else if strings.EqualFold(h.Key, HeaderContentType) {
			out.Attributes[AttrContentType] = string(h.Value)
		}
	}
	switch {
	case out.Attributes[AttrContentType] == ContentTypeAvro:
		out.Received, out.Foreign = parseAvro(value)
	case strings.HasPrefix(out.Attributes[AttrContentType], "application/cloudevents+json"):
		out.Received, out.Foreign = event.ParseStructured(value)
	case out.Attributes["id"] == "":
		out.Foreign = errors.New("the record has no header " + HeaderPrefix + "id")
	}
	return out, nil
}

package kafkaread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

const (
	fetchBytes = 4 << 20 // the maximum size of a fetch response for one partition

	earliest, latest = -2, -1 // special values of the timestamp in a ListOffsets request
)

// The headers of a record in binary mode. An attribute is sent in the header with HeaderPrefix and its name, except
// AttrContentType, which is sent in HeaderContentType.
const (
	HeaderPrefix      = "ce_"
	HeaderContentType = "content-type"
	AttrContentType   = "datacontenttype"
)

// partition is the state of reading one partition.
type partition struct {
	topic     string
	id        int32
	leader    string             // host:port, or empty if the partition has no leader
	next, end int64              // the offset of the next fetch, and the offset after the last record to read
	follow    bool               // reports whether end advances when records are written
	queue     []*diagnose.Record // fetched records that are not handled yet
}

func (p *partition) isOpen() bool { return p.next < p.end }

func (p *partition) place() string { return fmt.Sprintf("%s/%d", p.topic, p.id) }

// send sends a request to the partition's leader and returns the response.
func (p *partition) send(ctx context.Context, c *wire.Client, req protocol.Message) (protocol.Message, error) {
	if p.leader == "" {
		return nil, fmt.Errorf("partition %d of topic %s: %w", p.id, p.topic, kafkago.LeaderNotAvailable)
	}
	return c.Send(ctx, p.leader, req)
}

// begin determines the first and the last offset to read.
func (p *partition) begin(ctx context.Context, c *wire.Client, since time.Time) (err error) {
	at := int64(earliest)
	if !since.IsZero() {
		at = since.UnixMilli()
	}
	if p.end, err = p.offset(ctx, c, latest); err != nil {
		return err
	}
	if p.next, err = p.offset(ctx, c, at); p.next < 0 { // All records are older than since.
		p.next = p.end
	}
	return err
}

func (p *partition) offset(ctx context.Context, c *wire.Client, at int64) (int64, error) {
	msg, err := p.send(ctx, c, &listoffsets.Request{ReplicaID: -1, Topics: []listoffsets.RequestTopic{{
		Topic: p.topic,
		Partitions: []listoffsets.RequestPartition{
			{Partition: p.id, CurrentLeaderEpoch: -1, Timestamp: at},
		},
	}}})
	if err != nil {
		return 0, err
	}
	topics := msg.(*listoffsets.Response).Topics
	if len(topics) == 0 || len(topics[0].Partitions) == 0 {
		return 0, fmt.Errorf("the response does not contain partition %d of topic %s", p.id, p.topic)
	}
	found := topics[0].Partitions[0]
	if code := kafkago.Error(found.ErrorCode); code != 0 {
		return 0, c.CodeError("topic "+p.topic, code, "")
	}
	return found.Offset, nil
}

// fetch adds more records to the partition's queue. It reports whether it made progress.
func (p *partition) fetch(ctx context.Context, c *wire.Client) (came bool, err error) {
	msg, err := p.send(ctx, c, &fetch.Request{
		ReplicaID: -1, MinBytes: 1, MaxBytes: fetchBytes, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: p.topic, Partitions: []fetch.RequestPartition{{
			Partition: p.id, CurrentLeaderEpoch: -1, FetchOffset: p.next,
			LogStartOffset: -1, PartitionMaxBytes: fetchBytes,
		}}}},
	})
	if err != nil {
		return false, err
	}
	res := msg.(*fetch.Response)
	if len(res.Topics) != 1 || len(res.Topics[0].Partitions) != 1 {
		return false, fmt.Errorf("kafka broker %s: the response does not contain topic %s", p.leader, p.topic)
	}
	found := &res.Topics[0].Partitions[0]
	switch code := kafkago.Error(found.ErrorCode); code {
	case 0:
		return p.take(found)
	case kafkago.OffsetOutOfRange: // Retention deleted the record since the last fetch.
		return true, p.begin(ctx, c, time.Time{})
	default:
		return false, c.CodeError("topic "+p.topic, code, "")
	}
}

// take adds the fetched records to the queue. It reports whether it made progress.
func (p *partition) take(found *fetch.ResponsePartition) (came bool, err error) {
	if p.follow {
		p.end = max(p.end, found.HighWatermark)
	}
	before := p.next
	for found.RecordSet.Records != nil {
		record, err := found.RecordSet.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, fmt.Errorf("read topic %s: %w", p.topic, err)
		}
		if record.Offset < p.next { // The broker sends whole batches, which can begin before the requested offset.
			continue
		}
		if p.next = record.Offset + 1; record.Offset >= p.end {
			continue
		}
		r, err := p.recordOf(record)
		if err != nil {
			return false, fmt.Errorf("read topic %s: %w", p.topic, err)
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
	case strings.HasPrefix(out.Attributes[AttrContentType], "application/cloudevents+json"):
		out.Received, out.Foreign = event.ParseStructured(value)
	case out.Attributes["id"] == "":
		out.Foreign = errors.New("the record has no header " + HeaderPrefix + "id")
	}
	return out, nil
}

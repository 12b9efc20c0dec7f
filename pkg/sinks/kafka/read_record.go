package kafka

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// records queues the records of a fetch that are asked for.
func (r *reading) records(p *readPartition, found *fetch.ResponsePartition) error {
	for {
		record, err := found.RecordSet.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && record.Offset < p.next { // a batch is sent as a whole
			closeBytes(record)
			continue
		}
		if err != nil {
			return fmt.Errorf("read topic %s: %w", p.topic.name, err)
		}
		one, err := recordOf(p, record)
		if err != nil {
			return fmt.Errorf("read topic %s: %w", p.topic.name, err)
		}
		p.next = record.Offset + 1
		if record.Offset < p.end || r.Follow {
			p.queue = append(p.queue, one)
		}
	}
}

func closeBytes(record *protocol.Record) {
	for _, b := range []protocol.Bytes{record.Key, record.Value} {
		if b != nil {
			_ = b.Close() // memory that is used again
		}
	}
}

// recordOf is a record as [diagnose.Record], with bytes of its own.
func recordOf(p *readPartition, record *protocol.Record) (*diagnose.Record, error) {
	defer closeBytes(record)
	out := &diagnose.Record{Place: fmt.Sprintf("%s/%d #%d", p.topic.name, p.id, record.Offset), Stored: record.Time}
	if record.Value == nil {
		return out, nil // a tombstone
	}
	value, err := protocol.ReadAll(record.Value)
	if err != nil {
		return nil, err
	}
	out.Data, out.Attributes = value, make(map[string]string, len(record.Headers))
	for _, h := range record.Headers {
		if name, ok := attributeOf(h.Key); ok {
			out.Attributes[name] = string(h.Value)
		}
	}
	switch {
	case strings.HasPrefix(out.Attributes[attrContentType], "application/cloudevents+json"):
		var structured event.Received
		structured, out.Foreign = event.ParseStructured(value)
		out.Received = structured
	case out.Attributes["id"] == "":
		out.Foreign = errors.New("it has no header " + headerPrefix + "id")
	}
	return out, nil
}

package kafka

import (
	"github.com/segmentio/kafka-go/compress"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaread"
)

// batch encodes the messages for one partition as one record batch. The zero value is ready for Reset.
type batch struct {
	wire.Batch

	structured []byte // the value of a message in structured mode
	writer     string // identifies the sink in the records (sinks.Mark); empty if it does not read them back
	marks      sinks.Marks
	bare       bool // reports whether only the tombstones of messages are added
}

// add appends a message and, if tombstone is set, a tombstone after it. If the batch would become larger than limit,
// add leaves the batch unchanged and returns false. It always accepts the first message.
func (b *batch) add(m *event.Message, tombstone bool, limit int) bool {
	before, n := b.Size(), b.Records()
	if !b.bare {
		b.appendEvent(m)
	}
	if tombstone {
		b.appendTombstone(m)
	}
	if n > 0 && b.Size() > limit {
		b.Cut(b.Records()-n, before)
		return false
	}
	return true
}

func (b *batch) appendEvent(m *event.Message) {
	value := m.Data
	if m.Structured {
		b.structured = m.AppendStructured(b.structured[:0])
		value = b.structured
	}
	b.SetHeaders(func(add wire.AddHeader) { headers(m, b.writer, &b.marks, add) })
	b.Append(m.PartitionKey, value)
}

// headers calls add for each header of a message's record.
func headers(m *event.Message, writer string, marks *sinks.Marks, add wire.AddHeader) {
	add("", kafkaread.HeaderContentType, m.ContentType())
	if mark := marks.Of(writer, m); mark != "" {
		add("", sinks.MarkHeader, mark)
	}
	if m.Structured {
		if writer != "" {
			identify(m, add)
		}
		return
	}
	for name, value := range m.Attributes {
		if name != kafkaread.AttrContentType {
			add(kafkaread.HeaderPrefix, name, value)
		}
	}
}

// identify calls add for the attributes by which a record is recognized.
func identify(m *event.Message, add wire.AddHeader) {
	for name, value := range m.Attributes {
		if sinks.Identifies(name) {
			add(kafkaread.HeaderPrefix, name, value)
		}
	}
}

// appendTombstone appends a record with a null value. If records are read back, its headers identify the deletion.
func (b *batch) appendTombstone(m *event.Message) {
	b.SetHeaders(func(add wire.AddHeader) {
		if b.writer == "" {
			return
		}
		deleted := m
		if m.GapInfo != nil { // m replaces the rejected deletion
			deleted = m.GapInfo.Deletion
		}
		add("", sinks.MarkHeader, b.marks.Of(b.writer, deleted))
		identify(deleted, add)
	})
	b.AppendNull(m.PartitionKey)
}

// producer contains the id and epoch of the idempotent producer that writes a batch, and the sequence number of the
// batch's first record in this epoch.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
}

// encode is wire.Batch.Encode.
func (b *batch) encode(codec compress.Codec, p producer) ([]byte, error) {
	return b.Encode(codec, wire.Producer{ID: p.id, Epoch: p.epoch}, p.sequence)
}

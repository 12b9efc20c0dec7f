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

	encoded []byte // the value of a message in structured mode or in Avro
	schema  int    // the id of the Avro schema, or 0 if values are JSON
	writer  string // identifies the sink in the records (sinks.Mark); empty if it does not read them back
	marks   sinks.Marks
	bare    bool // reports whether only the tombstones of messages are added
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
	switch {
	case b.schema != 0:
		b.encoded = m.AppendAvro(kafkaread.AppendSchemaID(b.encoded[:0], b.schema))
		value = b.encoded
	case m.Structured:
		b.encoded = m.AppendStructured(b.encoded[:0])
		value = b.encoded
	}
	b.SetHeaders(func(add wire.AddHeader) { b.headers(m, add) })
	b.Append(m.PartitionKey, value)
}

// headers calls add for each header of a message's record. If the attributes are in the value, only those are headers
// by which the record is found again.
func (b *batch) headers(m *event.Message, add wire.AddHeader) {
	contentType := m.ContentType()
	if b.schema != 0 {
		contentType = kafkaread.ContentTypeAvro
	}
	add("", kafkaread.HeaderContentType, contentType)
	if mark := b.marks.Of(b.writer, m); mark != "" {
		add("", sinks.MarkHeader, mark)
	}
	if m.Structured || b.schema != 0 {
		if b.writer != "" {
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

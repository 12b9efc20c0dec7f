package kafka

import (
	"github.com/segmentio/kafka-go/compress"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaread"
)

// headerSchemaID is the header that contains the encoded id of the schema of a JSON value. Source: Confluent's
// serializers, HeaderSchemaIdSerializer.
const headerSchemaID = "__value_schema_id"

// batch encodes the messages for one partition as one record batch. The zero value is ready for Reset.
type batch struct {
	wire.Batch

	encoded []byte          // the value of a message in structured mode or in Avro
	format  registry.Format // empty if values have no schema
	schema  string          // the encoded id of the schema of values
	writer  string          // identifies the sink in the records (sinks.Mark); empty if it does not read them back
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
	if b.format == registry.FormatJSON && !m.Structured { // It is on disk since before the configuration was changed.
		structured := *m
		structured.Structured = true
		m = &structured
	}
	value := m.Data
	switch {
	case b.format == registry.FormatAvro:
		b.encoded = m.AppendAvro(append(b.encoded[:0], b.schema...))
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
	if b.format == registry.FormatAvro {
		contentType = kafkaread.ContentTypeAvro
	}
	add("", kafkaread.HeaderContentType, contentType)
	if b.format == registry.FormatJSON {
		add("", headerSchemaID, b.schema)
	}
	if mark := b.marks.Of(b.writer, m); mark != "" {
		add("", sinks.MarkHeader, mark)
	}
	switch {
	case !m.Structured && b.format == "":
		for name, value := range m.Headers {
			if name != kafkaread.AttrContentType {
				add(kafkaread.HeaderPrefix, name, value)
			}
		}
	case b.writer != "":
		identify(m, add)
	}
}

// identify calls add for the attributes by which a record is recognized.
func identify(m *event.Message, add wire.AddHeader) {
	for name, value := range m.Headers {
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

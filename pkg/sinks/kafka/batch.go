package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaread"
)

// Sizes of a record batch of format version 2. Source: the Kafka protocol guide, "Record Batch".
const (
	sizePrefix   = 4  // the length field that precedes the batch in the request
	lengthEnd    = 12 // the end of the length field, which counts the bytes after it
	checksumEnd  = 21 // the end of the checksum field, which covers the bytes after it
	batchHeader  = 61
	recordsStart = sizePrefix + batchHeader
)

// batch encodes the messages for one partition as one record batch. The zero value is ready for reset.
type batch struct {
	raw        []byte       // size prefix, batch header, records
	packed     bytes.Buffer // raw, with compressed records
	structured []byte       // the value of a message in structured mode
	head, tail []byte       // the parts of a record before and after its value: fields and headers
	writer     string       // identifies the sink in the records (sinks.Mark); empty if it does not read them back
	marks      sinks.Marks
	records    int32
	time       int64 // the timestamp of all records, in Unix milliseconds
}

// reset empties the batch and sets the timestamp of its future records to now.
func (b *batch) reset(now time.Time) {
	if cap(b.raw) < recordsStart {
		b.raw = make([]byte, recordsStart, 64<<10)
	}
	b.raw, b.records, b.time = b.raw[:recordsStart], 0, now.UnixMilli()
}

// size returns the batch's uncompressed size in bytes, as the broker counts it for its limits.
func (b *batch) size() int { return len(b.raw) - sizePrefix }

// add appends a message and, if tombstone is set, a tombstone after it. If the batch would become larger than limit,
// add leaves the batch unchanged and returns false. It always accepts the first message.
func (b *batch) add(m *event.Message, tombstone bool, limit int) bool {
	before, n := len(b.raw), b.records
	b.appendEvent(m, n)
	n++
	if tombstone {
		b.appendTombstone(m, n)
		n++
	}
	if b.records > 0 && b.size() > limit {
		b.raw = b.raw[:before]
		return false
	}
	b.records = n
	return true
}

func (b *batch) appendEvent(m *event.Message, offsetDelta int32) {
	value := m.Data
	if m.Structured {
		b.structured = m.AppendStructured(b.structured[:0])
		value = b.structured
	}
	b.setHeaders(func(add addHeader) { headers(m, b.writer, &b.marks, add) })
	b.appendRecord(offsetDelta, m.PartitionKey, len(value), value)
}

// setHeaders sets b.tail to the headers that list adds.
func (b *batch) setHeaders(list func(add addHeader)) {
	tail, n := append(b.tail[:0], 0), byte(0) // number of headers: one byte suffices for fewer than 64
	list(func(prefix, name, value string) {
		tail = appendHeader(tail, prefix, name, value)
		n++
	})
	tail[0] = n << 1 // encoded as a zigzag varint
	b.tail = tail
}

// addHeader adds a header, whose name is prefix followed by name.
type addHeader func(prefix, name, value string)

// headers calls add for each header of a message's record.
func headers(m *event.Message, writer string, marks *sinks.Marks, add addHeader) {
	add("", kafkaread.HeaderContentType, m.ContentType())
	if writer != "" {
		add("", sinks.MarkHeader, marks.Of(writer, m))
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
func identify(m *event.Message, add addHeader) {
	for name, value := range m.Attributes {
		if sinks.Identifies(name) {
			add(kafkaread.HeaderPrefix, name, value)
		}
	}
}

// appendTombstone appends a record with a null value. If records are read back, its headers identify the deletion.
func (b *batch) appendTombstone(m *event.Message, offsetDelta int32) {
	b.setHeaders(func(add addHeader) {
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
	b.appendRecord(offsetDelta, m.PartitionKey, -1, nil)
}

// appendRecord appends a record with the headers in b.tail. An empty key becomes null, which the broker rejects in a
// compacted topic.
func (b *batch) appendRecord(offsetDelta int32, key string, valueLen int, value []byte) {
	head := append(b.head[:0], 0, 0) // the attributes (none are defined), and the difference from the batch's timestamp
	head = binary.AppendVarint(head, int64(offsetDelta))
	if key == "" {
		head = binary.AppendVarint(head, -1)
	} else {
		head = append(binary.AppendVarint(head, int64(len(key))), key...)
	}
	b.head = binary.AppendVarint(head, int64(valueLen))
	b.raw = binary.AppendVarint(b.raw, int64(len(b.head)+len(value)+len(b.tail)))
	b.raw = append(b.raw, b.head...)
	b.raw = append(b.raw, value...)
	b.raw = append(b.raw, b.tail...)
}

func appendHeader(buf []byte, prefix, name, value string) []byte {
	buf = binary.AppendVarint(buf, int64(len(prefix)+len(name)))
	buf = append(buf, prefix...)
	buf = append(buf, name...)
	buf = binary.AppendVarint(buf, int64(len(value)))
	return append(buf, value...)
}

// producer contains the id and epoch of the idempotent producer that writes a batch, and the sequence number of the
// batch's first record in this epoch.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
}

// encode returns the record set for a produce request: its size as INT32, followed by the batch. The records are
// compressed if that makes the batch smaller. The result is valid until the next reset.
func (b *batch) encode(codec compress.Codec, p producer) ([]byte, error) {
	out, attributes := b.raw, byte(0)
	if codec != nil {
		if err := b.compress(codec); err != nil {
			return nil, err
		}
		if b.packed.Len() < len(b.raw) {
			out, attributes = b.packed.Bytes(), byte(codec.Code())
		}
	}
	be := binary.BigEndian
	h := be.AppendUint32(out[:0], uint32(len(out)-sizePrefix))
	h = be.AppendUint64(h, 0) // the base offset, which the broker sets
	h = be.AppendUint32(h, uint32(len(out)-sizePrefix-lengthEnd))
	h = be.AppendUint32(h, ^uint32(0)) // leader epoch -1, which the broker replaces
	h = append(h, 2, 0, 0, 0, 0)       // the format version, and space for the checksum
	h = append(h, 0, attributes)
	h = be.AppendUint32(h, uint32(b.records-1))
	h = be.AppendUint64(h, uint64(b.time)) // first timestamp
	h = be.AppendUint64(h, uint64(b.time)) // last timestamp
	h = be.AppendUint64(h, uint64(p.id))
	h = be.AppendUint16(h, uint16(p.epoch))
	h = be.AppendUint32(h, uint32(p.sequence))
	be.AppendUint32(h, uint32(b.records))
	covered := out[sizePrefix+checksumEnd:]
	be.PutUint32(out[sizePrefix+checksumEnd-4:], crc32.Checksum(covered, crc32.MakeTable(crc32.Castagnoli)))
	return out, nil
}

func (b *batch) compress(codec compress.Codec) error {
	b.packed.Reset()
	b.packed.Write(b.raw[:recordsStart]) // space for the header
	w := codec.NewWriter(&b.packed)
	_, err := w.Write(b.raw[recordsStart:])
	return errors.Join(err, w.Close())
}

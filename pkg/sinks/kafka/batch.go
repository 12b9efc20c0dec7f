package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Sizes of a record batch of format version 2. Source: the Kafka protocol guide, "Record Batch".
const (
	sizePrefix   = 4  // of the record set in the request, before the batch
	lengthEnd    = 12 // of what comes behind the length of the batch, the length counts
	checksumEnd  = 21 // what comes behind the checksum, it covers
	batchHeader  = 61
	recordsStart = sizePrefix + batchHeader
)

const (
	headerPrefix      = "ce_"
	headerContentType = "content-type"
	attrContentType   = "datacontenttype" // an attribute whose place is the header content-type
)

// batch encodes the messages for one partition as one record batch. The zero value is ready for reset.
type batch struct {
	raw        []byte       // size prefix, batch header, records
	packed     bytes.Buffer // the same with compressed records
	structured []byte       // the value of a message in structured mode
	head, tail []byte       // of a record: the fields before its value, and its headers
	records    int32
	time       int64 // the records' timestamp, Unix milliseconds
}

// reset empties the batch. Its records will have the timestamp now.
func (b *batch) reset(now time.Time) {
	if cap(b.raw) < recordsStart {
		b.raw = make([]byte, recordsStart, 64<<10)
	}
	b.raw, b.records, b.time = b.raw[:recordsStart], 0, now.UnixMilli()
}

// size is the batch's size without compression, in bytes, as the broker's limits count it.
func (b *batch) size() int { return len(b.raw) - sizePrefix }

// add appends a message, with a tombstone if required. If the batch would become larger than limit, it stays unchanged
// and add returns false. The first message is always added.
func (b *batch) add(m *event.Message, tombstone bool, limit int) bool {
	before, n := len(b.raw), b.records
	b.appendEvent(m, n)
	n++
	if tombstone {
		b.appendTombstone(m.PartitionKey, n)
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
	tail := append(b.tail[:0], 0) // number of headers: one byte as long as there are less than 64
	tail = appendHeader(tail, "", headerContentType, m.ContentType())
	headers := byte(1)
	if !m.Structured {
		m.Attributes(func(name, value string) bool {
			if name != attrContentType {
				tail = appendHeader(tail, headerPrefix, name, value)
				headers++
			}
			return true
		})
	}
	tail[0] = headers << 1 // as a zigzag varint
	b.tail = tail
	b.appendRecord(offsetDelta, m.PartitionKey, len(value), value)
}

// appendTombstone appends a record with a null value and no headers.
func (b *batch) appendTombstone(key string, offsetDelta int32) {
	b.tail = append(b.tail[:0], 0)
	b.appendRecord(offsetDelta, key, -1, nil)
}

// appendRecord appends a record with the headers in tail. An empty key becomes null, which the broker rejects in a
// compacted topic.
func (b *batch) appendRecord(offsetDelta int32, key string, valueLen int, value []byte) {
	head := append(b.head[:0], 0, 0) // attributes: none are defined; the difference to the batch's timestamp
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

// producer is the id and epoch of the idempotent producer that writes a batch, and the number of the batch's first
// record in that epoch.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
}

// encode returns the record set for a produce request: its size as INT32, then the batch, with compressed records
// where that makes it smaller. The result is valid until the next reset.
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
	h = be.AppendUint64(h, 0) // the broker sets the offset
	h = be.AppendUint32(h, uint32(len(out)-sizePrefix-lengthEnd))
	h = be.AppendUint32(h, ^uint32(0)) // leader epoch -1: the broker sets it
	h = append(h, 2, 0, 0, 0, 0)       // the version, and room for the checksum
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
	b.packed.Write(b.raw[:recordsStart]) // room for the header
	w := codec.NewWriter(&b.packed)
	_, err := w.Write(b.raw[recordsStart:])
	return errors.Join(err, w.Close())
}

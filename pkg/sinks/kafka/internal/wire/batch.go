package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// SizePrefix is the size of the length field that precedes a record batch in a produce request.
const SizePrefix = 4

// Sizes of a record batch of format version 2. Source: the Kafka protocol guide, "Record Batch".
const (
	lengthEnd    = 12 // the end of the length field, which counts the bytes after it
	checksumEnd  = 21 // the end of the checksum field, which covers the bytes after it
	batchHeader  = 61
	recordsStart = SizePrefix + batchHeader
)

// Batch encodes records for one partition as one record batch. The zero value is ready for Reset.
type Batch struct {
	raw        []byte       // size prefix, batch header, records
	packed     bytes.Buffer // raw, with compressed records
	head, tail []byte       // the parts of a record before and after its value: fields and headers
	records    int32
	time       int64 // the timestamp of all records, in Unix milliseconds
}

// Reset empties the batch and sets the timestamp of its future records to now.
func (b *Batch) Reset(now time.Time) {
	if cap(b.raw) < recordsStart {
		b.raw = make([]byte, recordsStart, 64<<10)
	}
	b.raw, b.records, b.time = b.raw[:recordsStart], 0, now.UnixMilli()
	b.tail = append(b.tail[:0], 0)
}

// Size returns the batch's uncompressed size in bytes, as the broker counts it for its limits.
func (b *Batch) Size() int { return len(b.raw) - SizePrefix }

// Records returns the number of records.
func (b *Batch) Records() int32 { return b.records }

// Cut removes the last n records. size is what Size was before they were added.
func (b *Batch) Cut(n int32, size int) { b.raw, b.records = b.raw[:SizePrefix+size], b.records-n }

// AddHeader adds a header, whose name is prefix followed by name.
type AddHeader func(prefix, name, value string)

// SetHeaders sets the headers of the records that are appended next to those that list adds. Reset removes them.
func (b *Batch) SetHeaders(list func(add AddHeader)) {
	tail, n := append(b.tail[:0], 0), byte(0) // number of headers: one byte suffices for fewer than 64
	list(func(prefix, name, value string) {
		tail = appendHeader(tail, prefix, name, value)
		n++
	})
	tail[0] = n << 1 // encoded as a zigzag varint
	b.tail = tail
}

// Append appends a record. An empty key becomes null, which the broker rejects in a compacted topic.
func (b *Batch) Append(key string, value []byte) { b.appendRecord(key, len(value), value) }

// AppendNull appends a record with a null value.
func (b *Batch) AppendNull(key string) { b.appendRecord(key, -1, nil) }

func (b *Batch) appendRecord(key string, valueLen int, value []byte) {
	head := append(b.head[:0], 0, 0) // the attributes (none are defined), and the difference from the batch's timestamp
	head = binary.AppendVarint(head, int64(b.records))
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
	b.records++
}

func appendHeader(buf []byte, prefix, name, value string) []byte {
	buf = binary.AppendVarint(buf, int64(len(prefix)+len(name)))
	buf = append(buf, prefix...)
	buf = append(buf, name...)
	buf = binary.AppendVarint(buf, int64(len(value)))
	return append(buf, value...)
}

// Encode returns the record set for a produce request: its size as INT32, followed by the batch of an idempotent
// producer. sequence is the sequence number of the batch's first record in the producer's epoch. The records are
// compressed if that makes the batch smaller. The result is valid until the next Reset.
func (b *Batch) Encode(codec compress.Codec, p Producer, sequence int32) ([]byte, error) {
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
	h := be.AppendUint32(out[:0], uint32(len(out)-SizePrefix))
	h = be.AppendUint64(h, 0) // the base offset, which the broker sets
	h = be.AppendUint32(h, uint32(len(out)-SizePrefix-lengthEnd))
	h = be.AppendUint32(h, ^uint32(0)) // leader epoch -1, which the broker replaces
	h = append(h, 2, 0, 0, 0, 0)       // the format version, and space for the checksum
	h = append(h, 0, attributes)
	h = be.AppendUint32(h, uint32(b.records-1))
	h = be.AppendUint64(h, uint64(b.time)) // first timestamp
	h = be.AppendUint64(h, uint64(b.time)) // last timestamp
	h = be.AppendUint64(h, uint64(p.ID))
	h = be.AppendUint16(h, uint16(p.Epoch))
	h = be.AppendUint32(h, uint32(sequence))
	be.AppendUint32(h, uint32(b.records))
	covered := out[SizePrefix+checksumEnd:]
	be.PutUint32(out[SizePrefix+checksumEnd-4:], crc32.Checksum(covered, crc32.MakeTable(crc32.Castagnoli)))
	return out, nil
}

func (b *Batch) compress(codec compress.Codec) error {
	b.packed.Reset()
	b.packed.Write(b.raw[:recordsStart]) // space for the header
	w := codec.NewWriter(&b.packed)
	_, err := w.Write(b.raw[recordsStart:])
	return errors.Join(err, w.Close())
}

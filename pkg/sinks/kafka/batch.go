package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Offsets in a record batch of format version 2. Source: the Kafka protocol guide, "Record Batch".
const (
	sizePrefix       = 4 // of the record set in the request, before the batch
	offBatchLength   = 8
	offLeaderEpoch   = 12 // batchLength counts from here
	offMagic         = 16
	offCRC           = 17
	offAttributes    = 21 // the checksum covers everything from here
	offLastDelta     = 23
	offBaseTimestamp = 27
	offMaxTimestamp  = 35
	offProducerID    = 43
	offProducerEpoch = 51
	offBaseSequence  = 53
	offRecords       = 57
	batchHeader      = 61
	recordsStart     = sizePrefix + batchHeader
)

const (
	headerPrefix      = "ce_"
	headerContentType = "content-type"
	attrContentType   = "datacontenttype" // an attribute whose place is the header content-type
)

// batch encodes the messages for one partition as one record batch. The zero value is ready for reset.
type batch struct {
	raw        []byte  // size prefix, batch header, records
	packed     []byte  // the same with compressed records
	structured []byte  // the value of a message in structured mode
	ends       []int32 // for each message: the number of records up to its last one
	time       int64   // the records' timestamp, Unix milliseconds
}

// reset empties the batch. Its records will have the timestamp now.
func (b *batch) reset(now time.Time) {
	if cap(b.raw) < recordsStart {
		b.raw = make([]byte, recordsStart, 64<<10)
	}
	b.raw, b.ends, b.time = b.raw[:recordsStart], b.ends[:0], now.UnixMilli()
}

// size is the batch's size without compression, in bytes, as the broker's limits count it.
func (b *batch) size() int { return len(b.raw) - sizePrefix }

func (b *batch) records() int32 {
	if len(b.ends) == 0 {
		return 0
	}
	return b.ends[len(b.ends)-1]
}

// add appends a message, and its tombstone if asked to. If the batch would then be larger than limit it stays
// as it was and the result is false; but the first message is always taken.
func (b *batch) add(m *event.Message, tombstone bool, limit int) bool {
	before, n := len(b.raw), b.records()
	b.appendEvent(m, n)
	n++
	if tombstone {
		b.appendTombstone(m.PartitionKey, n)
		n++
	}
	if len(b.ends) > 0 && b.size() > limit {
		b.raw = b.raw[:before]
		return false
	}
	b.ends = append(b.ends, n)
	return true
}

func (b *batch) appendEvent(m *event.Message, offsetDelta int32) {
	value := m.Data
	if m.Structured {
		b.structured = m.AppendStructured(b.structured[:0])
		value = b.structured
	}
	const headersGuess = 700 // a wrong guess costs a move of the record by a byte
	start, reserved := b.beginRecord(len(value)+headersGuess, offsetDelta)
	buf := appendKey(b.raw, m.PartitionKey)
	buf = binary.AppendVarint(buf, int64(len(value)))
	buf = append(buf, value...)

	count := len(buf)
	buf = append(buf, 0) // number of headers: one byte as long as there are less than 64
	headers := byte(1)
	buf = appendHeader(buf, "", headerContentType, m.ContentType())
	if !m.Structured {
		m.Attributes(func(name, value string) bool {
			if name != attrContentType {
				buf = appendHeader(buf, headerPrefix, name, value)
				headers++
			}
			return true
		})
	}
	buf[count] = headers << 1 // as a zigzag varint
	b.raw = buf
	b.endRecord(start, reserved)
}

func (b *batch) appendTombstone(key string, offsetDelta int32) {
	start, reserved := b.beginRecord(len(key), offsetDelta)
	b.raw = appendKey(b.raw, key)
	b.raw = append(b.raw, 1, 0) // value length -1, no headers
	b.endRecord(start, reserved)
}

// beginRecord leaves room for the length that a record of about sizeGuess bytes has, and appends its first fields.
func (b *batch) beginRecord(sizeGuess int, offsetDelta int32) (start, reserved int) {
	start, reserved = len(b.raw), varintSize(sizeGuess)
	var room [binary.MaxVarintLen64]byte
	b.raw = append(b.raw, room[:reserved]...)
	b.raw = append(b.raw, 0, 0) // attributes: none are defined; the difference to the batch's timestamp
	b.raw = binary.AppendVarint(b.raw, int64(offsetDelta))
	return start, reserved
}

// endRecord writes the length of the record that began at start.
func (b *batch) endRecord(start, reserved int) {
	length := len(b.raw) - start - reserved
	if size := varintSize(length); size != reserved {
		b.raw = append(b.raw, 0, 0, 0, 0, 0) // at least as much as the move needs
		copy(b.raw[start+size:], b.raw[start+reserved:start+reserved+length])
		b.raw = b.raw[:start+size+length]
	}
	binary.PutVarint(b.raw[start:], int64(length))
}

// appendKey appends a key; the empty one as null, which the broker refuses for a compacted topic.
func appendKey(buf []byte, key string) []byte {
	if key == "" {
		return append(buf, 1) // length -1
	}
	buf = binary.AppendVarint(buf, int64(len(key)))
	return append(buf, key...)
}

func appendHeader(buf []byte, prefix, name, value string) []byte {
	buf = binary.AppendVarint(buf, int64(len(prefix)+len(name)))
	buf = append(buf, prefix...)
	buf = append(buf, name...)
	buf = binary.AppendVarint(buf, int64(len(value)))
	return append(buf, value...)
}

// varintSize is the number of bytes of n as a zigzag varint.
func varintSize(n int) int {
	size := 1
	for v := uint64(n) << 1; v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// producer is who writes a batch: the id and epoch of the idempotent producer, and the number of the batch's first
// record in that epoch. The id -1 is nobody.
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
		if len(b.packed) < len(b.raw) {
			out, attributes = b.packed, byte(codec.Code())
		}
	}
	be := binary.BigEndian
	be.PutUint32(out, uint32(len(out)-sizePrefix))
	h := out[sizePrefix:]
	be.PutUint64(h, 0) // the broker sets the offset
	be.PutUint32(h[offBatchLength:], uint32(len(h)-offLeaderEpoch))
	be.PutUint32(h[offLeaderEpoch:], ^uint32(0)) // -1: the broker sets it
	h[offMagic] = 2
	be.PutUint16(h[offAttributes:], uint16(attributes))
	be.PutUint32(h[offLastDelta:], uint32(b.records()-1))
	be.PutUint64(h[offBaseTimestamp:], uint64(b.time))
	be.PutUint64(h[offMaxTimestamp:], uint64(b.time))
	be.PutUint64(h[offProducerID:], uint64(p.id))
	be.PutUint16(h[offProducerEpoch:], uint16(p.epoch))
	be.PutUint32(h[offBaseSequence:], uint32(p.sequence))
	be.PutUint32(h[offRecords:], uint32(b.records()))
	be.PutUint32(h[offCRC:], crc32.Checksum(h[offAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return out, nil
}

func (b *batch) compress(codec compress.Codec) error {
	if cap(b.packed) < recordsStart {
		b.packed = make([]byte, recordsStart, 16<<10)
	}
	b.packed = b.packed[:recordsStart]
	w := codec.NewWriter((*packedWriter)(b))
	_, err := w.Write(b.raw[recordsStart:])
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

// packedWriter appends to a batch's packed.
type packedWriter batch

func (w *packedWriter) Write(p []byte) (int, error) {
	w.packed = append(w.packed, p...)
	return len(p), nil
}

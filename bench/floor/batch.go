package main

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/klauspost/compress/snappy"
)

// Offsets in the record set of a produce request: its size, followed by one record batch of format version 2 (Kafka
// protocol guide, "Record Batch").
const (
	offBatch         = 4 // after the size
	offBatchLength   = offBatch + 8
	offLeaderEpoch   = offBatch + 12 // the length counts from here
	offMagic         = offBatch + 16
	offCRC           = offBatch + 17
	offAttributes    = offBatch + 21 // the checksum counts from here
	offLastDelta     = offBatch + 23
	offBaseTimestamp = offBatch + 27
	offMaxTimestamp  = offBatch + 35
	offProducer      = offBatch + 43 // producer id, epoch and sequence: 14 bytes, all -1 without a producer id
	offRecords       = offBatch + 57
	offFirst         = offBatch + 61

	snappyCodec = 2
)

// batch is a record batch that is being built. Call reset before the first add.
type batch struct {
	raw, packed []byte // both start with room for the header
	count       int
}

func (b *batch) reset() {
	if b.raw == nil {
		b.raw = make([]byte, offFirst, maxBatchBytes+64)
		b.packed = make([]byte, offFirst+snappy.MaxEncodedLen(maxBatchBytes+maxBatchBytes/2))
	}
	b.raw, b.count = b.raw[:offFirst], 0
}

func (b *batch) size() int { return len(b.raw) }

// add appends a record without key and headers.
func (b *batch) add(line []byte) {
	var front [32]byte
	fields := append(front[:0], 0, 0) // attributes, difference to the batch's timestamp
	fields = binary.AppendVarint(fields, int64(b.count))
	fields = append(fields, 1) // length of the key: -1
	fields = binary.AppendVarint(fields, int64(len(line)))
	b.raw = binary.AppendVarint(b.raw, int64(len(fields)+len(line)+1))
	b.raw = append(b.raw, fields...)
	b.raw = append(b.raw, line...)
	b.raw = append(b.raw, 0) // no headers
	b.count++
}

// encode compresses the records and writes the header. The result is valid until reset.
func (b *batch) encode() []byte {
	records := snappy.Encode(b.packed[offFirst:cap(b.packed)], b.raw[offFirst:])
	set := append(b.packed[:offFirst], records...) // in place, unless a line was larger than a batch
	b.packed = set
	be := binary.BigEndian
	be.PutUint32(set, uint32(len(set)-offBatch))
	be.PutUint32(set[offBatchLength:], uint32(len(set)-offLeaderEpoch))
	be.PutUint32(set[offLeaderEpoch:], ^uint32(0)) // unknown; the broker sets it
	set[offMagic] = 2
	be.PutUint16(set[offAttributes:], snappyCodec)
	be.PutUint32(set[offLastDelta:], uint32(b.count-1))
	now := uint64(time.Now().UnixMilli())
	be.PutUint64(set[offBaseTimestamp:], now)
	be.PutUint64(set[offMaxTimestamp:], now)
	for i := offProducer; i < offRecords; i++ {
		set[i] = 0xff
	}
	be.PutUint32(set[offRecords:], uint32(b.count))
	be.PutUint32(set[offCRC:], crc32.Checksum(set[offAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return set
}

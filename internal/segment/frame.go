package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
)

// A record in a file has the following format. All numbers are big-endian.
//
//	uint32 checksum of the rest of the head
//	uint32 checksum of the content
//	uint32 length of the content
//	uint16 length of the source, uint16 length of the position
//	uint64 number
//	the content: source, position, data
//
// Checksums are CRC-32C (Castagnoli, RFC 3720 appendix B.4). Their initial value is the seed of the log, so a record of
// another log is not mistaken for a record of this log. The head has its own checksum, so the start of the next record
// can be found even if the content is damaged.
const headBytes = 24

// windowBytes is the number of bytes that are read from a file at a time.
const windowBytes = 256 << 10

func checksum(seed uint32, data []byte) uint32 {
	return crc32.Update(seed, crc32.MakeTable(crc32.Castagnoli), data) // package crc32 creates the table only once
}

// Batch collects records for one Append. A batch of NewBatch is for another kind of log, which calls Records.
type Batch struct {
	seed        uint32
	data        []byte
	first, last uint64 // numbers of the first and last record; 0 if the batch is empty
	positions   map[string]string
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return &Batch{positions: map[string]string{}} }

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.positions)
	b.data, b.first, b.last = b.data[:0], 0, 0
}

// Bytes returns the size of the encoded records.
func (b *Batch) Bytes() int64 { return int64(len(b.data)) }

// Last returns the number of the last record, or 0 if the batch is empty.
func (b *Batch) Last() uint64 { return b.last }

// Positions returns the last position of every source in the batch. The map is valid until the batch is changed.
func (b *Batch) Positions() map[string]string { return b.positions }

// Records returns the number and the data of every record. The data is valid until the batch is changed.
func (b *Batch) Records() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for rest := b.data; len(rest) > 0; {
			head := rest[:headBytes]
			content := rest[headBytes:][:binary.BigEndian.Uint32(head[8:])]
			rest = rest[headBytes+len(content):]
			begin := binary.BigEndian.Uint16(head[12:]) + binary.BigEndian.Uint16(head[14:])
			if !yield(binary.BigEndian.Uint64(head[16:]), content[begin:]) {
				return
			}
		}
	}
}

// Add adds a record. encode must append the record's data to its argument and return the result. Numbers must be
// consecutive. If the batch would exceed room bytes, Add does not add the record.
func (b *Batch) Add(
	number uint64, source, position string, room int64, encode func([]byte) ([]byte, error),
) (added bool, err error) {
	begin := len(b.data)
	data := append(b.data, make([]byte, headBytes)...)
	data = append(append(data, source...), position...)
	data, err = encode(data)
	if err != nil {
		return false, err
	}
	length := len(data) - begin - headBytes
	if length > math.MaxInt32 || len(source) > math.MaxUint16 || len(position) > math.MaxUint16 {
		return false, fmt.Errorf("a record of %d bytes is too large", length)
	}
	if int64(len(data)) > room {
		return false, nil
	}
	head := data[begin : begin+headBytes]
	binary.BigEndian.PutUint32(head[4:], checksum(b.seed, data[begin+headBytes:]))
	binary.BigEndian.PutUint32(head[8:], uint32(length))
	binary.BigEndian.PutUint16(head[12:], uint16(len(source)))
	binary.BigEndian.PutUint16(head[14:], uint16(len(position)))
	binary.BigEndian.PutUint64(head[16:], number)
	binary.BigEndian.PutUint32(head, checksum(b.seed, head[4:]))
	if b.last == 0 {
		b.first = number
	}
	b.data, b.last = data, number
	if source != "" {
		b.positions[source] = position
	}
	return true, nil
}

// frame is a record in a file. Unless scanner.keep is set, the byte slices are valid until the scanner is used again.
type frame struct {
	number           uint64
	source, position []byte
	data             []byte
	bytes            int64 // size in the file
	err              error // set if the content is damaged
}

var errContent = errors.New("a record does not match its checksum")

// scanner reads the records of a file sequentially.
type scanner struct {
	file io.ReaderAt
	seed uint32
	// low is the lowest number that the next record can have, off is the lowest offset at which the record can begin, and
	// end is the offset at which the records end.
	low      uint64
	off, end int64

	window []byte
	begin  int64 // offset of window in the file
	// keep means that windows are not reused, so that records need not be copied. A record keeps its window in memory.
	keep bool
}

// next returns the next record with a number up to high, and skips damaged bytes before it. ok is false if there is no
// such record.
func (s *scanner) next(high uint64) (f frame, ok bool) {
	for ; s.off+headBytes <= s.end; s.off++ {
		if f, ok = s.here(high); ok {
			return f, true
		}
	}
	return frame{}, false
}

// here returns the record that begins at off. ok is false if no record with a number from low to high begins there.
func (s *scanner) here(high uint64) (f frame, ok bool) {
	if s.off+headBytes > s.end {
		return frame{}, false
	}
	head := s.bytes(s.off, headBytes)
	number, length := binary.BigEndian.Uint64(head[16:]), int(binary.BigEndian.Uint32(head[8:]))
	source, position := int(binary.BigEndian.Uint16(head[12:])), int(binary.BigEndian.Uint16(head[14:]))
	if number < s.low || number > high || s.off+headBytes+int64(length) > s.end || source+position > length ||
		binary.BigEndian.Uint32(head) != checksum(s.seed, head[4:]) {
		return frame{}, false
	}
	sum := binary.BigEndian.Uint32(head[4:]) // read before s.bytes overwrites the window
	content := s.bytes(s.off+headBytes, length)
	f = frame{
		number: number, source: content[:source], position: content[source : source+position],
		data: content[source+position:], bytes: headBytes + int64(length),
	}
	if checksum(s.seed, content) != sum {
		f.err = errContent
	}
	s.low, s.off = number+1, s.off+f.bytes
	return f, true
}

// bytes returns n bytes of the file. Bytes that cannot be read are returned as zeros, which are never a valid record.
func (s *scanner) bytes(off int64, n int) []byte {
	if off < s.begin || off+int64(n) > s.begin+int64(len(s.window)) {
		size := int(min(s.end-off, int64(max(n, windowBytes))))
		if s.keep || cap(s.window) < size || cap(s.window) > 4*windowBytes && size <= windowBytes {
			s.window = make([]byte, size)
		}
		s.window, s.begin = s.window[:size], off
		read, _ := s.file.ReadAt(s.window, off)
		clear(s.window[read:])
	}
	return s.window[off-s.begin:][:n]
}

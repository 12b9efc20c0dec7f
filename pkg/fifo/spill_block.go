package fifo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// blockBytes is about how many bytes of encoded items go into one block. Of what was tried (16 KiB to 1 MiB), 64 KiB
// costs the store the least: it copies a neighbouring block now and then, and handles each block as one entry.
const blockBytes = 64 << 10

// A block is what the store keeps under one key: items with consecutive numbers. All numbers are big endian:
//
//	uint32 checksum of the rest of the head
//	uint32 how many items
//	uint64 the number of the first
//	for each item: uint32 length, uint32 checksum
//	the items
//
// Checksums are CRC-32C (Castagnoli, RFC 3720 appendix B.4). A damaged item costs itself, a damaged head its block.
const (
	blockHead  = 16 // bytes before the table
	blockEntry = 8  // bytes of the table for each item
	// blockCost is about what a block takes in the file beside its bytes: its key, and its part of a page's own data.
	blockCost = 64
)

// block is where a run of items lies.
type block struct {
	first, last uint64 // the numbers of its items
	bytes       int64  // what it takes in the file
}

// footprint is what a block with so many bytes takes in the file.
func footprint(bytes int) int64 { return int64(bytes) + blockCost }

// castagnoli is the polynomial's table, which the package crc32 makes once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli()) }

// blockWriter builds a block. Its memory is used again after reset.
type blockWriter struct {
	block
	table []byte
	items []byte
	data  []byte // valid after finish
}

func (w *blockWriter) reset(first uint64) {
	w.block = block{first: first, last: first - 1}
	w.table, w.items = w.table[:0], w.items[:0]
}

// size is how many bytes the block has so far.
func (w *blockWriter) size() int { return blockHead + len(w.table) + len(w.items) }

// add appends the item that encode appends to its argument, unless that fails or allowed refuses the block's new size;
// then the block is as before.
func (w *blockWriter) add(encode func([]byte) ([]byte, error), allowed func(bytes int) bool) (bool, error) {
	before := len(w.items)
	items, err := encode(w.items)
	if err != nil {
		return false, err
	}
	if len(items)-before > math.MaxInt32 {
		return false, fmt.Errorf("an item of %d bytes is too large for the store", len(items)-before)
	}
	w.items = items
	if !allowed(w.size() + blockEntry) {
		w.items = items[:before]
		return false, nil
	}
	w.table = binary.BigEndian.AppendUint32(w.table, uint32(len(items)-before))
	w.table = binary.BigEndian.AppendUint32(w.table, checksum(items[before:]))
	w.last++
	return true, nil
}

// finish sets data and bytes.
func (w *blockWriter) finish() {
	d := append(w.data[:0], 0, 0, 0, 0)
	d = binary.BigEndian.AppendUint32(d, uint32(len(w.table)/blockEntry))
	d = binary.BigEndian.AppendUint64(d, w.first)
	d = append(d, w.table...)
	binary.BigEndian.PutUint32(d, checksum(d[4:]))
	w.data = append(d, w.items...)
	w.bytes = footprint(len(w.data))
}

var (
	errBlockMissing = errors.New("a block is missing")
	errBlockHead    = errors.New("the head of a block is damaged")
	errItem         = errors.New("an item does not match its checksum")
)

// rawItem is an item as it was read back, or, with err, a run of items that could not be.
type rawItem struct {
	first, last uint64
	data        []byte
	err         error
}

// items appends copies of b's items from the number from on to raw, at most limit of them, until they have budget
// bytes together; one is given at least.
func (b block) items(raw []rawItem, data []byte, from uint64, limit int, budget int64) []rawItem {
	count := int(b.last - b.first + 1)
	payload := blockHead + count*blockEntry
	if len(data) < payload || binary.BigEndian.Uint32(data) != checksum(data[4:payload]) ||
		binary.BigEndian.Uint32(data[4:]) != uint32(count) || binary.BigEndian.Uint64(data[8:]) != b.first {
		return append(raw, rawItem{first: from, last: b.last, err: errBlockHead})
	}
	offset := payload
	for i := range count {
		seq := b.first + uint64(i)
		entry := data[blockHead+i*blockEntry:]
		length := int(binary.BigEndian.Uint32(entry))
		if length > len(data)-offset {
			return append(raw, rawItem{first: max(seq, from), last: b.last, err: errBlockHead})
		}
		item := data[offset : offset+length]
		offset += length
		if seq < from {
			continue
		}
		r := rawItem{first: seq, last: seq}
		if checksum(item) == binary.BigEndian.Uint32(entry[4:]) {
			r.data = append([]byte{}, item...)
		} else {
			r.err = errItem
		}
		raw = append(raw, r)
		limit--
		budget -= int64(length)
		if limit <= 0 || budget <= 0 {
			break
		}
	}
	return raw
}

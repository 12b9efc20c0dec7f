package fifo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// What lies where in the store.
const (
	spillFormat  = "1"
	bucketState  = "fifo.spill" // the keys below
	bucketMarks  = "marks"      // source -> position, sealed
	bucketBlocks = "blocks"     // the numbers of the first and the last item, 8 bytes big endian each -> block

	keyFormat = "format"
	// keyNumbers has two numbers, 8 bytes big endian each, sealed: everything up to the first was acknowledged, and the
	// newest item has the second.
	keyNumbers = "numbers"
)

// spillState is what the file says.
type spillState struct {
	acked, last uint64
	blocks      []block // in order, without a hole
	marks       map[string]string
	lostMarks   int // those that were damaged
	fileBytes   int64
}

// spillCommit is what one transaction changes.
type spillCommit struct {
	keep       uint64 // blocks in front of this one go; 0: none
	known      uint64 // what begins behind this number is of a transaction that failed and was in part written: it goes
	freedBytes int64  // what those in front take
	blocks     []*blockWriter
	acked      uint64
	last       uint64
	marks      map[string]string // those that change
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// seal puts the checksum of key and value before the value, since the store has none.
func seal(key, value []byte) []byte {
	sum := crc32.Update(checksum(key), castagnoli(), value)
	return append(binary.BigEndian.AppendUint32(nil, sum), value...)
}

// unseal is the opposite; ok is false if the value is damaged.
func unseal(key, sealed []byte) (value []byte, ok bool) {
	if len(sealed) < 4 {
		return nil, false
	}
	value = sealed[4:]
	return value, bytes.Equal(seal(key, value), sealed)
}

func (b block) key() []byte { return binary.BigEndian.AppendUint64(number(b.first), b.last) }

func (state *spillState) read(tx *bbolt.Tx) error {
	fixed, marks, blocks := tx.Bucket([]byte(bucketState)), tx.Bucket([]byte(bucketMarks)), tx.Bucket([]byte(bucketBlocks))
	if fixed == nil || marks == nil || blocks == nil {
		return errors.New("this is no spill file")
	}
	if format := fixed.Get([]byte(keyFormat)); string(format) != spillFormat {
		return fmt.Errorf("it has format %q, known is %q", format, spillFormat)
	}
	numbers, ok := unseal([]byte(keyNumbers), fixed.Get([]byte(keyNumbers)))
	if !ok || len(numbers) != 16 {
		return &damageError{"the numbers of the first and last item do not match their checksum"}
	}
	state.acked, state.last = binary.BigEndian.Uint64(numbers), binary.BigEndian.Uint64(numbers[8:])
	state.marks = map[string]string{}
	err := marks.ForEach(func(source, position []byte) error {
		if position, ok := unseal(source, position); ok {
			state.marks[string(source)] = string(position)
		} else {
			state.lostMarks++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the marks: %w", err)
	}
	return state.readBlocks(blocks)
}

// readBlocks finds the blocks. Where some are missing one without bytes is put in, so that their items are missed when it is
// their turn.
func (state *spillState) readBlocks(bucket *bbolt.Bucket) error {
	contradiction := &damageError{"the numbers of the items contradict each other"}
	end, previous := state.acked, uint64(0)
	c := bucket.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if len(k) != 16 {
			return contradiction
		}
		b := block{first: binary.BigEndian.Uint64(k), last: binary.BigEndian.Uint64(k[8:]), bytes: footprint(len(v))}
		if b.first > b.last || b.last > state.last || b.first <= previous {
			return contradiction
		}
		previous = b.last
		if b.last <= state.acked {
			continue
		}
		if b.first > end+1 {
			state.blocks = append(state.blocks, block{first: end + 1, last: b.first - 1})
		}
		state.blocks = append(state.blocks, b)
		end = b.last
	}
	if end > state.last { // acknowledged what is not there
		return contradiction
	}
	if end < state.last {
		state.blocks = append(state.blocks, block{first: end + 1, last: state.last})
	}
	return nil
}

// apply makes c's changes in tx.
func (c *spillCommit) apply(tx *bbolt.Tx) error {
	blocks, err := c.fixed(tx)
	if err != nil {
		return err
	}
	if err := deleteBlocks(blocks, nil, number(c.keep)); err != nil {
		return err
	}
	if err := deleteBlocks(blocks, number(c.known+1), nil); err != nil { // those of a failed transaction
		return err
	}
	for _, b := range c.blocks {
		if err := blocks.Put(b.key(), b.data); err != nil {
			return fmt.Errorf("write a block: %w", err)
		}
	}
	return nil
}

// deleteBlocks deletes the blocks with keys not below from and below to; nil: no end. In a damaged tree a key may be met that can't
// be deleted, or one may be met twice.
func deleteBlocks(blocks *bbolt.Bucket, from, to []byte) error {
	cursor := blocks.Cursor()
	var last []byte
	for {
		k, _ := cursor.Seek(from)
		if k == nil || to != nil && bytes.Compare(k, to) >= 0 {
			return nil
		}
		if last != nil && bytes.Compare(k, last) <= 0 {
			return &damageError{"a block can't be deleted"}
		}
		last = bytes.Clone(k)
		if err := blocks.Delete(last); err != nil {
			return fmt.Errorf("delete a block: %w", err)
		}
	}
}

// fixed writes all but the blocks, and gives their bucket.
func (c *spillCommit) fixed(tx *bbolt.Tx) (*bbolt.Bucket, error) {
	buckets := map[string]*bbolt.Bucket{}
	for _, name := range []string{bucketState, bucketMarks, bucketBlocks} {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return nil, fmt.Errorf("create a bucket: %w", err)
		}
		buckets[name] = b
	}
	buckets[bucketBlocks].FillPercent = 1 // keys only grow
	state := buckets[bucketState]
	err := errors.Join(
		state.Put([]byte(keyFormat), []byte(spillFormat)),
		state.Put([]byte(keyNumbers), seal([]byte(keyNumbers), append(number(c.acked), number(c.last)...))),
	)
	for source, position := range c.marks {
		err = errors.Join(err, buckets[bucketMarks].Put([]byte(source), seal([]byte(source), []byte(position))))
	}
	if err != nil {
		return nil, fmt.Errorf("write the state: %w", err)
	}
	return buckets[bucketBlocks], nil
}

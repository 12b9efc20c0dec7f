package statelog

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
)

// Pair is a value in a bucket, or its removal. A nil Value removes the value. With an empty Key, a nil Value removes
// all values of the source in the bucket.
type Pair struct {
	Bucket, Source, Key string
	Value               []byte
}

// Claim describes the process that writes to the log.
type Claim struct {
	Installation  string    `json:"installation"`      // if empty, the installation of the log is used
	Cluster       string    `json:"cluster,omitempty"` // uid of the cluster; empty if it is not known
	Lease         string    `json:"lease,omitempty"`   // namespace/name of the Lease of the replicas; empty if there is none
	Epoch         uint64    `json:"epoch"`             // number of the term, assigned by Writer.Claim
	Holder        string    `json:"holder"`            // name of the process, for messages
	Started       time.Time `json:"started"`
	Configuration string    `json:"configuration"` // hash of the configuration
	Nonce         uint64    `json:"nonce"`         // makes two claims differ; assigned by Writer.Claim
	// Unsent is Point.Unsent of the process's copy, assigned by Writer.Claim.
	Unsent string `json:"unsent,omitempty"`
	// Sent is the Point.Unsent that a copy of the process had before the log received everything.
	Sent string `json:"sent,omitempty"`
}

// check returns an error if a process with the claim own must not use a log that has the claim c.
func (c Claim) check(own Claim) error {
	switch {
	case differ(c.Installation, own.Installation):
		return fmt.Errorf("%w: it is of installation %q (%s), this one is %q", ErrForeign, c.Installation, c.Holder,
			own.Installation)
	case differ(c.Cluster, own.Cluster):
		return fmt.Errorf("%w: it is of cluster %s (%s), this one is %s", ErrForeign, c.Cluster, c.Holder, own.Cluster)
	}
	return c.checkLease(own)
}

// checkLease returns an error if the processes with the claims c and own elect their leaders independently.
func (c Claim) checkLease(own Claim) error {
	if differ(c.Lease, own.Lease) {
		return fmt.Errorf("%w: it is of the replicas with the Lease %s (%s), this one has the Lease %s", ErrForeign, c.Lease,
			c.Holder, own.Lease)
	}
	return nil
}

// isOfSameProcess reports whether c and other are claims of one process, which can have made them in different terms.
func (c Claim) isOfSameProcess(other Claim) bool {
	return c.Holder == other.Holder && c.Started.Equal(other.Started)
}

// differ reports whether two values are known and not equal.
func differ(a, b string) bool { return a != b && a != "" && b != "" }

type kind byte

const (
	kindClaim kind = iota + 1
	kindChanges
	kindRefresh

	kindMask  = 0x0f
	flagLast  = 0x40 // ends a pass
	flagFirst = 0x80 // begins a pass; only a claim has it
)

const (
	maxHeader = 1 + 4 + 1 + 4*binary.MaxVarintLen64 + 4
	minRecord = maxHeader + 32
)

// header is the same in all records of a commit, except for part.
type header struct {
	kind        kind
	first, last bool
	epoch       uint64
	number      uint64 // number of the commit
	previous    uint32 // chain of the previous commit
	part, parts uint64 // part is less than parts
}

func (h header) append(dst []byte) []byte {
	b := byte(h.kind)
	if h.first {
		b |= flagFirst
	}
	if h.last {
		b |= flagLast
	}
	dst = append(dst, b)
	dst = binary.AppendUvarint(dst, h.epoch)
	dst = binary.AppendUvarint(dst, h.number)
	dst = binary.AppendUvarint(dst, h.part)
	dst = binary.AppendUvarint(dst, h.parts)
	return binary.LittleEndian.AppendUint32(dst, h.previous)
}

// commit is a change of the copies that is applied completely or not at all.
type commit struct {
	header // part and parts are 0

	payload []byte // pairs, or the claim
}

// chain returns a checksum of the commit and of all commits before it. Copies with the same chain have the same
// content.
func (c *commit) chain() uint32 {
	return crc32.Update(checksum(c.append(nil)), castagnoli(), c.payload)
}

// size returns the approximate number of bytes that the commit adds to the log.
func (c *commit) size() int64 { return int64(len(c.payload) + maxHeader) }

// records returns how many records of at most maxSize bytes the commit needs. maxSize must be minRecord or more.
func (c *commit) records(maxSize int) uint64 {
	chunk := maxSize - maxHeader
	return uint64(max(1, (len(c.payload)+chunk-1)/chunk))
}

// record returns a record of the commit.
func (c *commit) record(maxSize int, part uint64) []byte {
	h, chunk := c.header, maxSize-maxHeader
	h.part, h.parts = part, c.records(maxSize)
	from := int(part) * chunk
	data := c.payload[from:min(from+chunk, len(c.payload))]
	record := append(make([]byte, 0, maxHeader+len(data)), files.Format, 0, 0, 0, 0)
	record = append(h.append(record), data...)
	binary.LittleEndian.PutUint32(record[1:], recordSum(record))
	return record
}

// decode returns the header of a record and its part of the payload, which shares memory with the record.
func decode(record []byte) (h header, data []byte, err error) {
	if len(record) < 6 || binary.LittleEndian.Uint32(record[1:]) != recordSum(record) {
		return h, nil, fmt.Errorf("%w (%d bytes)", ErrDamaged, len(record))
	}
	if err := files.CheckFormat("the state log", int(record[0])); err != nil || record[0] == 0 {
		return h, nil, cmp.Or(err, ErrDamaged)
	}
	b, rest := record[5], record[6:]
	h.kind, h.first, h.last = kind(b&kindMask), b&flagFirst != 0, b&flagLast != 0
	for _, field := range []*uint64{&h.epoch, &h.number, &h.part, &h.parts} {
		value, n := binary.Uvarint(rest)
		if n <= 0 {
			return h, nil, ErrDamaged
		}
		*field, rest = value, rest[n:]
	}
	if len(rest) < 4 || h.part >= h.parts || h.kind < kindClaim || h.kind > kindRefresh {
		return h, nil, ErrDamaged
	}
	h.previous = binary.LittleEndian.Uint32(rest)
	return h, rest[4:], nil
}

// claim returns the claim in the payload.
func (c *commit) claim() (claim Claim, err error) {
	if err := json.Unmarshal(c.payload, &claim); err != nil {
		return claim, errors.Join(ErrDamaged, err)
	}
	claim.Epoch = c.epoch
	return claim, nil
}

// pairs returns the pairs in the payload. Their values share its memory.
func (c *commit) pairs() (pairs []Pair, err error) {
	for b := c.payload; len(b) > 0; {
		var fields [4][]byte
		for n := range fields {
			size, used := binary.Uvarint(b)
			if used <= 0 || n < 3 && size == 0 || size > uint64(len(b)-used)+1 {
				return nil, ErrDamaged
			}
			if b = b[used:]; size > 0 {
				fields[n], b = b[:size-1:size-1], b[size-1:]
			}
		}
		pairs = append(pairs, Pair{string(fields[0]), string(fields[1]), string(fields[2]), fields[3]})
	}
	return pairs, nil
}

// encodePairs encodes each pair as four fields. Before each field is its length plus one, or zero for a nil Value.
func encodePairs(pairs []Pair) (dst []byte) {
	for _, p := range pairs {
		for _, field := range []string{p.Bucket, p.Source, p.Key} {
			dst = append(binary.AppendUvarint(dst, uint64(len(field))+1), field...)
		}
		if p.Value == nil {
			dst = append(dst, 0)
		} else {
			dst = append(binary.AppendUvarint(dst, uint64(len(p.Value))+1), p.Value...)
		}
	}
	return dst
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // hash/crc32 creates this table only once

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli()) }

// recordSum returns the checksum of everything in a record except the checksum itself.
func recordSum(record []byte) uint32 {
	return crc32.Update(checksum(record[:1]), castagnoli(), record[5:])
}

package logfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
)

// sampleBytes is how much of a file identifies it, at its beginning and before the position.
const sampleBytes = 1024

// position is what is stored of a place. Everything in the backups up to After was read, and then, in another file,
// everything before Offset.
type position struct {
	After  string `json:"after,omitempty"` // a stamp
	Offset int64  `json:"offset"`
	// Skipping is true if Offset is in a line that is too long.
	Skipping bool `json:"skipping,omitempty"`
	// The checksums of the first bytes of the file, and of the last ones before the offset that are not among the first.
	Head string `json:"head,omitempty"`
	Tail string `json:"tail,omitempty"`
}

// place is a position, and the bytes that its checksums are of.
type place struct {
	after      string
	offset     int64
	skipping   bool
	head, tail []byte
}

func (p *place) position() position {
	return position{
		After: p.after, Offset: p.offset, Skipping: p.skipping, Head: checksum(p.head), Tail: checksum(p.tail),
	}
}

func checksum(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// advance notes that these bytes were read.
func (p *place) advance(b []byte) {
	p.offset += int64(len(b))
	n := min(sampleBytes-len(p.head), len(b))
	p.head = append(p.head, b[:n]...)
	b = b[n:]
	keep := max(0, min(len(p.tail), sampleBytes-len(b)))
	p.tail = append(p.tail[:0], p.tail[len(p.tail)-keep:]...)
	p.tail = append(p.tail, b[max(0, len(b)-sampleBytes):]...)
}

// find reads a file up to the position, and returns its place. It returns false if the position is in another file.
func (c *content) find(at *position) (p place, isSame bool, err error) {
	p = place{after: at.After, offset: at.Offset, skipping: at.Skipping}
	head := min(at.Offset, sampleBytes)
	tail := min(at.Offset-head, sampleBytes)
	p.head, p.tail = make([]byte, head), make([]byte, tail)
	_, err = io.ReadFull(c, p.head)
	if err == nil && checksum(p.head) != at.Head {
		return place{}, false, nil
	}
	if err == nil {
		err = c.skip(at.Offset - head - tail)
	}
	if err == nil {
		_, err = io.ReadFull(c, p.tail)
	}
	switch {
	case errors.Is(err, io.EOF) || err != nil && isDamaged(err): // too short
		return place{}, false, nil
	case err != nil:
		return place{}, false, fmt.Errorf("read %s: %w", c.path, err)
	}
	return p, checksum(p.tail) == at.Tail, nil
}

func (c *content) skip(n int64) error {
	if !c.isCompressed() {
		_, err := c.file.Seek(n, io.SeekCurrent)
		return err
	}
	_, err := io.CopyN(io.Discard, c, n)
	return err
}

// holds reports whether the file still has what was read of it last: up to the place, and what follows in the buffer.
func (c *content) holds(p *place, buffer []byte) bool {
	last := p.tail
	if len(last) == 0 {
		last = p.head
	}
	last = slices.Concat(last, buffer[max(0, len(buffer)-sampleBytes):])
	last = last[max(0, len(last)-sampleBytes):]
	now := make([]byte, len(last))
	n, _ := c.file.ReadAt(now, p.offset+int64(len(buffer)-len(last)))
	return string(now[:n]) == string(last)
}

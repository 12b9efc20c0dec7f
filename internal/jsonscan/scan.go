package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Space returns the offset of the first byte at or after i that is not JSON white space.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// String returns the offset after the string whose opening quote is b[i], or -1 if the string does not end.
func String(b []byte, i int) int {
	i++
	for {
		n := quote(b[i:])
		if n < 0 {
			return -1
		}
		i += n
		if b[i-1] != '\\' {
			return i + 1
		}
		// The quote is escaped if an odd number of backslashes precedes it. The opening quote ends the loop.
		slashes := 1
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i
		}
	}
}

// ones has the value 1 in each of its eight bytes. It is used to test eight bytes at a time (Warren, Hacker's Delight,
// section 6-1). The lowest set bit of (x-ones) &^ x & (ones<<7) is in the first byte of x that is 0. The result is 0 if
// no byte of x is 0.
const ones = 0x0101010101010101

// isPlain reports whether the content of a JSON string requires no decoding, because it is ASCII without escapes and
// control characters.
func isPlain(inner []byte) bool {
	for len(inner) >= 8 {
		x := binary.LittleEndian.Uint64(inner)
		slash := x ^ '\\'*ones
		if ((x-' '*ones)|(slash-ones)&^slash|x)&(ones<<7) != 0 {
			break // check byte by byte: a borrow from a lower byte can cause a false match
		}
		inner = inner[8:]
	}
	for _, c := range inner {
		if c == '\\' || c >= 0x80 || c < ' ' {
			return false
		}
	}
	return true
}

// quote returns bytes.IndexByte(b, '"'). Most strings are short, so it checks the first 32 bytes eight at a time before
// it calls IndexByte, which is faster for long strings.
func quote(b []byte) int {
	const (
		quotes = '"' * ones
		near   = 32
	)
	for i := 0; i < near && i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:]) ^ quotes
		if found := (x - ones) &^ x & (ones << 7); found != 0 { // only the lowest set bit is reliable
			return i + bits.TrailingZeros64(found)>>3
		}
	}
	return bytes.IndexByte(b, '"')
}

// Value returns the offset after the value that starts at b[i], or -1 if no value starts there or it does not end.
func Value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return String(b, i)
	case '{', '[':
		return nested(b, i)
	}
	start := i
	for i < len(b) && !isDelimiter(b[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// isDelimiter reports whether c ends a number, true, false or null.
func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ':', '}', ']', '{', '[', '"':
		return true
	}
	return false
}

// nested implements Value for the object or array that opens at b[i].
func nested(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = String(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

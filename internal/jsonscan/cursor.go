package jsonscan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Cursor iterates over the members of a JSON object or the elements of a JSON array, without parsing their values. The
// JSON should be JSON that pkg/object has accepted. For other input, the cursor stops and sets Bad, but never panics.
type Cursor struct {
	b []byte
	i int // offset of the next byte to read
	// Bad is set if the input is not valid JSON.
	Bad bool
}

// NewCursor returns a cursor over b, which must begin with { or [.
func NewCursor(b []byte) Cursor { return Cursor{b: b, i: 1} }

// Member returns the key and the value of the object's next member, both as JSON. They alias the scanned bytes. ok is
// false after the last member.
func (c *Cursor) Member() (key, value []byte, ok bool) {
	key, ok = c.Element()
	if !ok {
		return nil, nil, false
	}
	c.skipSpace()
	if key[0] != '"' || c.i >= len(c.b) || c.b[c.i] != ':' {
		c.Bad = true
		return nil, nil, false
	}
	c.i++
	value, ok = c.value()
	return key, value, ok
}

// Element returns the array's next element. ok is false after the last element.
func (c *Cursor) Element() (value []byte, ok bool) {
	c.skipSpace()
	if c.i < len(c.b) && c.b[c.i] == ',' {
		c.i++
		c.skipSpace()
	}
	if c.i < len(c.b) && (c.b[c.i] == '}' || c.b[c.i] == ']') {
		return nil, false
	}
	return c.value()
}

// value returns the value at the cursor.
func (c *Cursor) value() (value []byte, ok bool) {
	c.skipSpace()
	start := c.i
	c.i = Value(c.b, start)
	if c.i <= start {
		c.i, c.Bad = len(c.b), true
		return nil, false
	}
	return c.b[start:c.i], true
}

func (c *Cursor) skipSpace() { c.i = Space(c.b, c.i) }

// Unquote decodes a JSON string, including its quotes, as encoding/json does: invalid UTF-8 becomes U+FFFD.
func Unquote(quoted []byte) (string, error) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

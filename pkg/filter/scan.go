package filter

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// cursor walks over the members of one JSON object or the elements of one JSON array, without a look into them.
// What it is given is JSON that pkg/object has accepted; on anything else it stops with bad set, and never panics.
type cursor struct {
	b   []byte
	i   int  // behind what was read so far
	bad bool // what was read is no JSON
}

// newCursor makes a cursor over b, which begins with { or [.
func newCursor(b []byte) cursor { return cursor{b: b, i: 1} }

// member returns the next member of an object: the key as its JSON string, and the value. Both are parts of b.
func (c *cursor) member() (key, value []byte, ok bool) {
	key, ok = c.element()
	if !ok {
		return nil, nil, false
	}
	c.skipSpace()
	if key[0] != '"' || c.i >= len(c.b) || c.b[c.i] != ':' {
		c.bad = true
		return nil, nil, false
	}
	c.i++
	value, ok = c.value()
	return key, value, ok
}

// element returns the next element of an array.
func (c *cursor) element() (value []byte, ok bool) {
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
func (c *cursor) value() (value []byte, ok bool) {
	c.skipSpace()
	start := c.i
	c.i = jsonscan.Value(c.b, start)
	if c.i <= start {
		c.i, c.bad = len(c.b), true
		return nil, false
	}
	return c.b[start:c.i], true
}

func (c *cursor) skipSpace() { c.i = jsonscan.Space(c.b, c.i) }

// unquote decodes a JSON string as encoding/json does: invalid UTF-8 becomes U+FFFD.
func unquote(quoted []byte) (string, error) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), nil
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

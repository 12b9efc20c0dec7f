package filter

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
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
	c.i = skipValue(c.b, start)
	if c.i <= start {
		c.i, c.bad = len(c.b), true
		return nil, false
	}
	return c.b[start:c.i], true
}

func (c *cursor) skipSpace() { c.i = skipSpace(c.b, c.i) }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index behind the value that begins at i, or -1 if the text ends before the value.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for i < len(b) && !endsLiteral(b[i]) {
		i++
	}
	return i
}

// endsLiteral reports whether a number, true, false or null ends before c.
func endsLiteral(c byte) bool {
	switch c {
	case ',', ']', '}', ':', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}

// skipNested counts brackets, of both kinds together: in valid JSON they match.
func skipNested(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
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

// skipString returns the index behind the string whose opening quote is at start.
func skipString(b []byte, start int) int {
	for i := start + 1; ; i++ {
		quote := bytes.IndexByte(b[min(i, len(b)):], '"')
		if quote < 0 {
			return -1
		}
		i += quote
		backslashes := 0
		for b[i-1-backslashes] == '\\' {
			backslashes++ // ends at the opening quote at the latest
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}

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

package object

import (
	"bytes"
	"encoding/json"
)

// The scanner knows JSON (RFC 8259) only as far as it must to find the members of an object and the ends of values:
// strings, and brackets by their depth. It is iterative, so deep nesting costs no stack, and it allocates nothing.
// Offsets are absolute in the scanned bytes; -1 says that the bytes ended, or were no JSON, before the end was found.

// skipSpace returns the offset of the first byte at or after i that is no JSON white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the offset behind the string whose opening quote is b[i].
func skipString(b []byte, i int) int {
	i++
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		if b[i-1] != '\\' {
			return i + 1
		}
		// An odd number of backslashes escapes the quote. The opening quote ends the count.
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

// skipValue returns the offset behind the value that starts at b[i].
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
	start := i
	for i < len(b) && !isDelimiter(b[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r', ',', ':', '}', ']', '{', '[', '"':
		return true
	}
	return false
}

// skipNested returns the offset behind the object or array that opens at b[i].
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

// walker steps through the members of a JSON object, or the elements of an array:
//
//	w := open(b, i)
//	for w.next() {
//		w.text(), w.skip() or w.leave(end): one of them, to pass the value
//	}
//	end := w.end()
type walker struct {
	b     []byte
	pos   int    // where the current value starts
	key   []byte // of the current member, escapes resolved; nil in an array
	keyAt int    // where the current member starts, with the quote of its key
	comma int    // the comma before the current entry, -1 before the first
	close byte   // the bracket that ends the walk
	begun bool
	bad   bool
}

// open starts a walk over the object or array that opens at b[i].
func open(b []byte, i int) walker {
	w := walker{b: b, pos: i + 1, comma: -1, close: '}'}
	if b[i] == '[' {
		w.close = ']'
	}
	return w
}

// next finds the next entry. It is false at the closing bracket, and where the bytes are no JSON; end tells.
func (w *walker) next() bool {
	if w.bad {
		return false
	}
	i := skipSpace(w.b, w.pos)
	if i < len(w.b) && w.b[i] == w.close {
		w.pos = i + 1
		return false
	}
	if w.begun {
		if i >= len(w.b) || w.b[i] != ',' {
			return w.fail()
		}
		w.comma = i
		i = skipSpace(w.b, i+1)
	}
	w.begun = true
	if w.close == '}' {
		if i >= len(w.b) || w.b[i] != '"' {
			return w.fail()
		}
		end := skipString(w.b, i)
		if end < 0 {
			return w.fail()
		}
		w.keyAt, w.key = i, unquote(w.b[i:end])
		if i = skipSpace(w.b, end); i >= len(w.b) || w.b[i] != ':' {
			return w.fail()
		}
		i = skipSpace(w.b, i+1)
	}
	if i >= len(w.b) {
		return w.fail()
	}
	w.pos = i
	return true
}

func (w *walker) fail() bool {
	w.bad = true
	return false
}

// opens reports whether the current value starts with this bracket.
func (w *walker) opens(bracket byte) bool { return w.b[w.pos] == bracket }

// leave passes the current value, which ends at the given offset.
func (w *walker) leave(end int) {
	w.pos = end
	w.bad = w.bad || end < 0
}

// skip passes the current value unread.
func (w *walker) skip() { w.leave(skipValue(w.b, w.pos)) }

// text passes the current value and returns it if it is a string, otherwise nil. The result may alias the scanned bytes.
func (w *walker) text() []byte {
	start := w.pos
	w.skip()
	if w.bad || w.b[start] != '"' {
		return nil
	}
	return unquote(w.b[start:w.pos])
}

// end returns the offset behind the closing bracket once next was false; -1 if the walk failed.
func (w *walker) end() int {
	if w.bad {
		return -1
	}
	return w.pos
}

// unquote returns the text of a JSON string, given with its quotes; nil if it is none. The result aliases the token
// unless it has escapes or bytes outside ASCII, which encoding/json resolves.
func unquote(token []byte) []byte {
	inner := token[1 : len(token)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 || c < ' ' {
			var s string
			if json.Unmarshal(token, &s) != nil {
				return nil
			}
			return []byte(s)
		}
	}
	return inner
}

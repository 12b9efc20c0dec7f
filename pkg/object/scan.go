package object

import (
	"encoding/json"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// walker iterates over the members of a JSON object or the elements of an array:
//
//	w := open(b, i)
//	for w.next() {
//		w.text(), w.skip() or w.leave(end): one of them, to pass the value
//	}
//	end := w.end()
type walker struct {
	b     []byte
	pos   int    // offset of the current value
	key   []byte // key of the current member with escapes resolved; nil in an array
	keyAt int    // offset of the current member, including the quote of its key
	comma int    // offset of the comma before the current entry; -1 for the first entry
	close byte   // closing bracket
	begun bool
	bad   bool
	// longestKey is the length in bytes of the longest key that was passed, including keys within values.
	longestKey int
}

// open returns a walker for the object or array that opens at b[i].
func open(b []byte, i int) walker {
	w := walker{b: b, pos: i + 1, comma: -1, close: '}'}
	if b[i] == '[' {
		w.close = ']'
	}
	return w
}

// next moves to the next entry. It returns false at the closing bracket, and if the bytes are not valid JSON. The
// method end distinguishes the two cases.
func (w *walker) next() bool {
	if w.bad {
		return false
	}
	i := jsonscan.Space(w.b, w.pos)
	if i < len(w.b) && w.b[i] == w.close {
		w.pos = i + 1
		return false
	}
	if w.begun {
		if i >= len(w.b) || w.b[i] != ',' {
			return w.fail()
		}
		w.comma = i
		i = jsonscan.Space(w.b, i+1)
	}
	w.begun = true
	if w.close == '}' {
		if i >= len(w.b) || w.b[i] != '"' {
			return w.fail()
		}
		end := jsonscan.String(w.b, i)
		if end < 0 {
			return w.fail()
		}
		w.keyAt, w.key = i, unquote(w.b[i:end])
		w.longestKey = max(w.longestKey, end-i-len(`""`))
		if i = jsonscan.Space(w.b, end); i >= len(w.b) || w.b[i] != ':' {
			return w.fail()
		}
		i = jsonscan.Space(w.b, i+1)
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

// opens reports whether the current value starts with the given bracket.
func (w *walker) opens(bracket byte) bool { return w.b[w.pos] == bracket }

// leave moves past the current value, which ends at the given offset. A negative offset means that the value does not
// end.
func (w *walker) leave(end int) {
	w.pos = end
	w.bad = w.bad || end < 0
}

// skip moves past the current value without decoding it.
func (w *walker) skip() {
	end, key := jsonscan.Measure(w.b, w.pos)
	w.longestKey = max(w.longestKey, key)
	w.leave(end)
}

// text moves past the current value. It returns the value if it is a string, otherwise nil. The result may alias the
// scanned bytes.
func (w *walker) text() []byte {
	start := w.pos
	w.skip()
	if w.bad || w.b[start] != '"' {
		return nil
	}
	return unquote(w.b[start:w.pos])
}

// end returns the offset after the closing bracket, or -1 if the walk failed. It must be called after next has returned
// false.
func (w *walker) end() int {
	if w.bad {
		return -1
	}
	return w.pos
}

// unquote decodes a JSON string, including its quotes. It returns nil if the string is not valid. The result aliases
// token unless the string contains escapes, control characters or non-ASCII bytes, which encoding/json handles.
func unquote(token []byte) []byte {
	inner := token[1 : len(token)-1]
	if jsonscan.IsPlain(inner) {
		return inner
	}
	var s string
	if json.Unmarshal(token, &s) != nil {
		return nil
	}
	return []byte(s)
}

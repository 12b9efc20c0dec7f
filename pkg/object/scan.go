package object

import (
	"encoding/json"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

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
	// longestKey is the length in bytes of the longest key that was passed, also within values.
	longestKey int
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

// opens reports whether the current value starts with this bracket.
func (w *walker) opens(bracket byte) bool { return w.b[w.pos] == bracket }

// leave passes the current value, which ends at the given offset.
func (w *walker) leave(end int) {
	w.pos = end
	w.bad = w.bad || end < 0
}

// skip passes the current value unread.
func (w *walker) skip() {
	end, key := jsonscan.Measure(w.b, w.pos)
	w.longestKey = max(w.longestKey, key)
	w.leave(end)
}

// text passes the current value and returns it if it is a string, otherwise nil. The result may alias the scanned
// bytes.
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
	if jsonscan.IsPlain(inner) {
		return inner
	}
	var s string
	if json.Unmarshal(token, &s) != nil {
		return nil
	}
	return []byte(s)
}

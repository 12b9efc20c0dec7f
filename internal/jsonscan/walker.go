package jsonscan

import "encoding/json"

// Walker iterates over the members of a JSON object or the elements of a JSON array, in one pass and without parsing
// the values:
//
//	w := Open(b, i, '{')
//	for w.Next() {
//		// exactly one call of Value, Text, Skip or Leave
//	}
//	end := w.End()
type Walker struct {
	// Key is the key of the current member, with escapes resolved. It may alias the scanned bytes. It is nil in an array,
	// and if the key is not a valid string.
	Key []byte
	// Pos is the offset of the current value.
	Pos int
	// KeyAt is the offset of the current member's key, and Comma the offset of the comma before the current entry. Comma
	// is -1 for the first entry.
	KeyAt, Comma int
	// Bad is set if the scanned bytes are not valid JSON.
	Bad bool

	b     []byte
	close byte // closing bracket
	begun bool
	ended bool
}

// Open returns a walker over the object or array at b[i]. White space before it is skipped. If the value does not start
// with the bracket, the walker has no entries, and End returns the end of the value.
func Open(b []byte, i int, bracket byte) Walker {
	i = Space(b, i)
	w := Walker{b: b, Pos: i + 1, Comma: -1, close: bracket + 2} // the brackets of a pair are two code points apart
	if i >= len(b) || b[i] != bracket {
		w.ended = true
		w.Leave(Value(b, i))
	}
	return w
}

// Next moves to the next entry. It returns false after the last entry, and if the bytes are not valid JSON.
func (w *Walker) Next() bool {
	if w.Bad || w.ended {
		return false
	}
	i := Space(w.b, w.Pos)
	if i < len(w.b) && w.b[i] == w.close {
		w.Pos, w.ended = i+1, true
		return false
	}
	if w.begun {
		if i >= len(w.b) || w.b[i] != ',' {
			return w.fail()
		}
		w.Comma = i
		i = Space(w.b, i+1)
	}
	w.begun = true
	if w.close == '}' {
		if i >= len(w.b) || w.b[i] != '"' {
			return w.fail()
		}
		end := String(w.b, i)
		if end < 0 {
			return w.fail()
		}
		w.KeyAt, w.Key = i, Text(w.b[i:end])
		if i = Space(w.b, end); i >= len(w.b) || w.b[i] != ':' {
			return w.fail()
		}
		i = Space(w.b, i+1)
	}
	if i >= len(w.b) {
		return w.fail()
	}
	w.Pos = i
	return true
}

func (w *Walker) fail() bool {
	w.Bad = true
	return false
}

// Leave moves past the current value, which ends at the given offset. A negative offset means that the value does not
// end.
func (w *Walker) Leave(end int) {
	w.Pos = end
	w.Bad = w.Bad || end < 0
}

// Skip moves past the current value.
func (w *Walker) Skip() { w.Leave(Value(w.b, w.Pos)) }

// Value moves past the current value and returns it. The result aliases the scanned bytes. It is nil if the value does
// not end.
func (w *Walker) Value() []byte {
	start := w.Pos
	w.Skip()
	if w.Bad {
		return nil
	}
	return w.b[start:w.Pos]
}

// Text moves past the current value and returns the result of the function Text for it.
func (w *Walker) Text() []byte { return Text(w.Value()) }

// All yields the key and the value of each remaining entry: for key, value := range w.All. The key is nil in an array.
func (w *Walker) All(yield func(key, value []byte) bool) {
	for w.Next() {
		if value := w.Value(); w.Bad || !yield(w.Key, value) {
			return
		}
	}
}

// End returns the offset after the object or array, or -1 if the bytes are not valid JSON. It must be called after Next
// has returned false.
func (w *Walker) End() int {
	if w.Bad {
		return -1
	}
	return w.Pos
}

// Member returns the value of the last member with this name, or nil if b is not an object or has no such member. The
// result aliases b.
func Member(b []byte, name string) (found []byte) {
	w := Open(b, 0, '{')
	for key, value := range w.All {
		if string(key) == name {
			found = value
		}
	}
	return found
}

// Text decodes a JSON string, including its quotes. It returns nil if the value is not a valid string. The result
// aliases the value unless it contains escapes or non-ASCII bytes, which encoding/json decodes: invalid UTF-8 becomes
// U+FFFD.
func Text(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return nil
	}
	inner := value[1 : len(value)-1]
	if isPlain(inner) {
		return inner
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return nil
	}
	return []byte(s)
}

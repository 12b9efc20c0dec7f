package jsonpatch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// Op is the name of a JSON Patch operation (RFC 6902).
type Op string

// The operations that Diff returns.
const (
	Add     Op = "add"
	Remove  Op = "remove"
	Replace Op = "replace"
)

// Segment is one step of a path: a member of an object or an element of a list.
type Segment struct {
	// Name is the name of the member. It is empty if the segment is a list element.
	Name string
	// Element is the element's value in the new document, or in the old document if the element was removed. It is nil if
	// the segment is an object member. Element aliases the document.
	Element []byte
	// Index is the element's index in the document that Element aliases.
	Index int
}

// Change is one JSON Patch operation.
type Change struct {
	Op Op
	// Path is the path of the changed value in the new document, or in the old document if the value was removed. If it is
	// empty, the whole document changed.
	Path []Segment
	// Old is the previous value, or nil for an addition. It aliases the old document.
	Old []byte
	// Value is the new value, or nil for a removal. It aliases the new document.
	Value []byte

	// at is the index of the last segment after the preceding operations have been applied, or -1 if this index equals the
	// segment's Index. The two indices differ only for elements that are removed from a list.
	at int
}

// Pointer returns the Path as a JSON pointer (RFC 6901).
func (c *Change) Pointer() string { return string(appendPointer(nil, c.Path, -1)) }

func appendPointer(dst []byte, path []Segment, at int) []byte {
	for n, s := range path {
		dst = append(dst, '/')
		switch {
		case s.Element == nil:
			dst = append(dst, escape(s.Name)...)
		case at >= 0 && n == len(path)-1:
			dst = strconv.AppendInt(dst, int64(at), 10)
		default:
			dst = strconv.AppendInt(dst, int64(s.Index), 10)
		}
	}
	return dst
}

// escape escapes a member name for a JSON pointer.
func escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// maxDepth limits the depth to which documents are compared. Every level is scanned once more than the level above, so
// the cost grows with the depth.
const maxDepth = 500

// Diff returns the operations that turn oldDoc into newDoc, in the order in which they must be applied.
func Diff(oldDoc, newDoc []byte) []Change {
	var d differ
	d.value(nil, trim(oldDoc), trim(newDoc))
	return d.changes
}

func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// differ walks two documents in parallel and collects the differences.
type differ struct{ changes []Change }

func (d *differ) emit(op Op, path []Segment, old, value []byte, at int) {
	d.changes = append(d.changes, Change{Op: op, Path: slices.Clone(path), Old: old, Value: value, at: at})
}

// value compares two values at the same path.
func (d *differ) value(path []Segment, before, after []byte) {
	if same(before, after) {
		return
	}
	if len(path) <= maxDepth {
		if a, b, ok := both(membersOf, before, after); ok {
			d.object(path, a, b)
			return
		}
		if a, b, ok := both(elementsOf, before, after); ok {
			d.list(path, a, b)
			return
		}
	}
	d.emit(Replace, path, before, after, -1)
}

// both parses two values. It returns false if either of them is not valid.
func both[T any](parse func([]byte) (T, bool), before, after []byte) (a, b T, ok bool) {
	if a, ok = parse(before); ok {
		b, ok = parse(after)
	}
	return a, b, ok
}

// same reports whether two values have equal bytes, or are the same string with different escapes.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := jsonscan.Text(a), jsonscan.Text(b)
	return x != nil && y != nil && bytes.Equal(x, y)
}

// members contains the members of an object in document order.
type members struct {
	list  []member
	index map[string]int // index in list by name; nil if there are few members
}

// member is a member of an object. Its fields alias the document.
type member struct{ name, value []byte }

// few is the number of members up to which a loop costs less than a map.
const few = 16

// membersOf returns the members of an object. ok is false if the value is not a valid object or has duplicate keys.
func membersOf(object []byte) (m members, ok bool) {
	if !bytes.HasPrefix(object, []byte("{")) {
		return m, false
	}
	m.list = make([]member, 0, few)
	w := jsonscan.Open(object, 0, '{')
	for key, value := range w.All {
		if key == nil {
			return m, false
		}
		m.list = append(m.list, member{key, value})
	}
	if len(m.list) > few {
		m.index = make(map[string]int, len(m.list))
	}
	for n := range m.list {
		if m.find(m.list[:n], m.list[n].name) >= 0 {
			return m, false
		}
		if m.index != nil {
			m.index[string(m.list[n].name)] = n
		}
	}
	return m, !w.Bad
}

// get returns the value of a member, or nil if there is none.
func (m *members) get(name []byte) []byte {
	if n := m.find(m.list, name); n >= 0 {
		return m.list[n].value
	}
	return nil
}

// find returns the index of a member, or -1 if there is none. Without an index, it searches a part of the list.
func (m *members) find(in []member, name []byte) int {
	if m.index == nil {
		return slices.IndexFunc(in, func(other member) bool { return bytes.Equal(other.name, name) })
	}
	if n, ok := m.index[string(name)]; ok {
		return n
	}
	return -1
}

// elementsOf returns the elements of a list. ok is false if the value is not a valid list.
func elementsOf(list []byte) (elements [][]byte, ok bool) {
	if !bytes.HasPrefix(list, []byte("[")) {
		return nil, false
	}
	w := jsonscan.Open(list, 0, '[')
	for _, value := range w.All {
		elements = append(elements, value)
	}
	return elements, !w.Bad
}

func (d *differ) object(path []Segment, before, after members) {
	for _, m := range before.list {
		if after.get(m.name) == nil {
			d.emit(Remove, append(path, Segment{Name: string(m.name)}), m.value, nil, -1)
		}
	}
	for _, m := range after.list {
		switch old := before.get(m.name); {
		case old == nil:
			d.emit(Add, append(path, Segment{Name: string(m.name)}), nil, m.value, -1)
		case !bytes.Equal(old, m.value):
			d.value(append(path, Segment{Name: string(m.name)}), old, m.value)
		}
	}
}

// list compares two lists from left to right. After the changes emitted so far are applied, the elements to the left of
// the current element equal those of the new list.
func (d *differ) list(path []Segment, before, after [][]byte) {
	i, j := 0, 0
	for _, pair := range append(align(before, after), [2]int{len(before), len(after)}) {
		for ; i < pair[0] && j < pair[1]; i, j = i+1, j+1 { // Neither element has a counterpart.
			d.value(append(path, Segment{Element: after[j], Index: j}), before[i], after[j])
		}
		for ; i < pair[0]; i++ {
			d.emit(Remove, append(path, Segment{Element: before[i], Index: i}), before[i], nil, j)
		}
		for ; j < pair[1]; j++ {
			d.emit(Add, append(path, Segment{Element: after[j], Index: j}), nil, after[j], -1)
		}
		if i < len(before) && j < len(after) { // Compare the two paired elements.
			d.value(append(path, Segment{Element: after[j], Index: j}), before[i], after[j])
			i, j = i+1, j+1
		}
	}
}

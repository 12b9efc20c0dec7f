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
	d := differ{}
	d.value(trim(oldDoc), trim(newDoc))
	return d.changes
}

func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// differ walks two documents in parallel and collects the differences.
type differ struct {
	path    []Segment
	changes []Change
}

func (d *differ) emit(op Op, old, value []byte) {
	d.changes = append(d.changes, Change{Op: op, Path: slices.Clone(d.path), Old: old, Value: value, at: -1})
}

func (d *differ) enter(s Segment) { d.path = append(d.path, s) }
func (d *differ) leave()          { d.path = d.path[:len(d.path)-1] }

// value compares two values at the same path.
func (d *differ) value(before, after []byte) {
	if same(before, after) {
		return
	}
	if len(before) == 0 || len(after) == 0 || before[0] != after[0] || len(d.path) > maxDepth {
		d.emit(Replace, before, after)
		return
	}
	switch after[0] {
	case '{':
		a, okBefore := membersOf(before)
		b, okAfter := membersOf(after)
		if okBefore && okAfter {
			d.object(a, b)
			return
		}
	case '[':
		a, okBefore := elementsOf(before)
		b, okAfter := elementsOf(after)
		if okBefore && okAfter {
			d.list(a, b)
			return
		}
	}
	d.emit(Replace, before, after)
}

// same reports whether two values have equal bytes, or are the same string with different escapes.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) < 2 || len(b) < 2 || a[0] != '"' || b[0] != '"' ||
		bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return false
	}
	x := jsonscan.Text(a)
	return x != nil && bytes.Equal(x, jsonscan.Text(b))
}

// members contains the members of an object in document order.
type members struct {
	names  []string
	values map[string][]byte
}

// membersOf returns the members of an object. ok is false if the value is not a valid object or has duplicate keys.
func membersOf(object []byte) (m members, ok bool) {
	m.values = map[string][]byte{}
	w := jsonscan.Open(object, 0, '{')
	for key, value := range w.All {
		if key == nil {
			return m, false
		}
		name := string(key)
		m.names = append(m.names, name)
		m.values[name] = value
	}
	return m, !w.Bad && len(m.values) == len(m.names)
}

// elementsOf returns the elements of a list. ok is false if the value is not a valid list.
func elementsOf(list []byte) (elements [][]byte, ok bool) {
	w := jsonscan.Open(list, 0, '[')
	for _, value := range w.All {
		elements = append(elements, value)
	}
	return elements, !w.Bad
}

func (d *differ) object(before, after members) {
	for _, name := range before.names {
		if _, stays := after.values[name]; !stays {
			d.enter(Segment{Name: name})
			d.emit(Remove, before.values[name], nil)
			d.leave()
		}
	}
	for _, name := range after.names {
		d.enter(Segment{Name: name})
		if old, was := before.values[name]; was {
			d.value(old, after.values[name])
		} else {
			d.emit(Add, nil, after.values[name])
		}
		d.leave()
	}
}

// list compares two lists from left to right. After the changes emitted so far are applied, the elements to the left of
// the current element equal those of the new list.
func (d *differ) list(before, after [][]byte) {
	start := 0
	for start < len(before) && start < len(after) && same(before[start], after[start]) {
		start++
	}
	endBefore, endAfter := len(before), len(after)
	for endBefore > start && endAfter > start && same(before[endBefore-1], after[endAfter-1]) {
		endBefore, endAfter = endBefore-1, endAfter-1
	}
	i, j := start, start
	pairs := align(before[start:endBefore], after[start:endAfter])
	for _, pair := range append(pairs, [2]int{endBefore - start, endAfter - start}) {
		nextBefore, nextAfter := start+pair[0], start+pair[1]
		for ; i < nextBefore && j < nextAfter; i, j = i+1, j+1 { // Neither element has a counterpart.
			d.element(before[i], after[j], j)
		}
		for ; i < nextBefore; i++ {
			d.enter(Segment{Element: before[i], Index: i})
			d.emit(Remove, before[i], nil)
			d.changes[len(d.changes)-1].at = j
			d.leave()
		}
		for ; j < nextAfter; j++ {
			d.enter(Segment{Element: after[j], Index: j})
			d.emit(Add, nil, after[j])
			d.leave()
		}
		if i < endBefore { // Compare the two paired elements.
			d.element(before[i], after[j], j)
			i, j = i+1, j+1
		}
	}
}

func (d *differ) element(before, after []byte, index int) {
	d.enter(Segment{Element: after, Index: index})
	d.value(before, after)
	d.leave()
}

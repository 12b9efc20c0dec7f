package event

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// manager is an entry of metadata.managedFields, with the changed paths that it owns.
type manager struct {
	Name        string   `json:"manager"`
	Operation   string   `json:"operation"` // Apply or Update
	Subresource string   `json:"subresource,omitempty"`
	Time        string   `json:"time,omitempty"`
	Paths       []string `json:"paths"`

	fields *fieldSet
}

// managersOf reads the managedFields; what is not as expected is left out. No entry has paths yet.
func managersOf(managedFields []byte) (managers []manager) {
	if len(managedFields) == 0 || managedFields[0] != '[' {
		return nil
	}
	entries := jsonscan.NewCursor(managedFields)
	for entry, ok := entries.Element(); ok; entry, ok = entries.Element() {
		if entry[0] != '{' {
			continue
		}
		m := manager{Paths: []string{}}
		c := jsonscan.NewCursor(entry)
		for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
			switch string(key) {
			case `"manager"`:
				m.Name = text(value)
			case `"operation"`:
				m.Operation = text(value)
			case `"subresource"`:
				m.Subresource = text(value)
			case `"time"`:
				m.Time = text(value)
			case `"fieldsV1"`:
				m.fields = &fieldSet{raw: value}
			}
		}
		managers = append(managers, m)
	}
	return managers
}

// text of a JSON string; empty for all else.
func text(value []byte) string {
	if value[0] != '"' {
		return ""
	}
	s, err := jsonscan.Unquote(value)
	if err != nil {
		return ""
	}
	return s
}

// ownersOf are the managers that own any of the changed paths in the new state. A manager that changes a field owns it
// from then on, so that these are the ones who made the change. A field that was removed has no owner any more, unless it
// was a part of one that is owned as a whole.
func ownersOf(managedFields []byte, changes []jsonpatch.Change) (owners []manager) {
	for _, m := range managersOf(managedFields) {
		for n := range changes {
			c := &changes[n]
			if !isResourceVersion(c.Path) && m.fields.owns(c.Path) {
				m.Paths = append(m.Paths, c.Pointer())
			}
		}
		if len(m.Paths) > 0 {
			owners = append(owners, m)
		}
	}
	return owners
}

func appendManagers(dst []byte, managers []manager) []byte {
	if len(managers) == 0 {
		return append(dst, "[]"...)
	}
	data, err := json.Marshal(managers)
	if err != nil { // texts always marshal
		return append(dst, "[]"...)
	}
	return append(dst, data...)
}

// fieldSet is a node of FieldsV1: a set of fields as server-side apply writes it. Its children are read when they are asked
// for.
type fieldSet struct {
	raw    []byte
	read   bool
	fields map[string]*fieldSet // f:<name>
	items  []fieldItem          // k:<keys>, v:<value>, i:<index>
}

// fieldItem is a set of fields in an element of a list.
type fieldItem struct {
	kind  byte   // k, v or i
	value []byte // the keys, the value or the index, as JSON
	set   *fieldSet
}

func (s *fieldSet) readChildren() {
	s.read = true
	if len(s.raw) == 0 || s.raw[0] != '{' {
		return
	}
	s.fields = map[string]*fieldSet{}
	c := jsonscan.NewCursor(s.raw)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		name, err := jsonscan.Unquote(key)
		if err != nil || len(name) < 2 || name[1] != ':' {
			continue // "." is the node itself
		}
		if name[0] == 'f' {
			s.fields[name[2:]] = &fieldSet{raw: value}
		} else if rest := []byte(name[2:]); len(rest) > 0 {
			s.items = append(s.items, fieldItem{name[0], rest, &fieldSet{raw: value}})
		}
	}
}

// owns reports whether the set has the path itself, something below it, or a node above it that is owned as a whole.
func (s *fieldSet) owns(path []jsonpatch.Segment) bool {
	if s == nil {
		return false
	}
	for n := range path {
		if n > 0 && string(s.raw) == "{}" {
			return true
		}
		if s = s.child(&path[n]); s == nil {
			return false
		}
	}
	return true
}

func (s *fieldSet) child(step *jsonpatch.Segment) *fieldSet {
	if !s.read {
		s.readChildren()
	}
	if step.Element == nil {
		return s.fields[step.Name]
	}
	for _, item := range s.items {
		if item.matches(step) {
			return item.set
		}
	}
	return nil
}

func (i *fieldItem) matches(step *jsonpatch.Segment) bool {
	switch i.kind {
	case 'i':
		return string(i.value) == strconv.Itoa(step.Index)
	case 'v':
		return sameScalar(i.value, step.Element)
	case 'k':
		if i.value[0] != '{' || step.Element[0] != '{' {
			return false
		}
		c := jsonscan.NewCursor(i.value)
		for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
			if !hasMember(step.Element, key, value) {
				return false
			}
		}
		return !c.Bad
	}
	return false
}

func hasMember(object, name, want []byte) bool {
	c := jsonscan.NewCursor(object)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		if bytes.Equal(key, name) {
			return sameScalar(value, want)
		}
	}
	return false
}

// sameScalar compares texts by what they say, and all else by how it is written.
func sameScalar(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return a[0] == '"' && b[0] == '"' && text(a) == text(b)
}

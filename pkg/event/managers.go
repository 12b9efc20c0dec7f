package event

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// manager is an entry of metadata.managedFields, together with the changed paths that the manager owns.
type manager struct {
	Name        string   `json:"manager"`
	Operation   string   `json:"operation"` // Apply or Update
	Subresource string   `json:"subresource,omitempty"`
	Time        string   `json:"time,omitempty"`
	Paths       []string `json:"paths"`

	fields *fieldSet
}

// managersOf parses managedFields. It returns managers without paths, and omits invalid entries.
func managersOf(managedFields []byte) (managers []manager) {
	w := jsonscan.Open(managedFields, 0, '[')
	for _, entry := range w.All {
		found, err := membersOf(entry, "manager", "operation", "subresource", "time", "fieldsV1")
		if err != nil {
			continue
		}
		managers = append(managers, manager{
			Name: string(jsonscan.Text(found[0])), Operation: string(jsonscan.Text(found[1])),
			Subresource: string(jsonscan.Text(found[2])), Time: string(jsonscan.Text(found[3])),
			Paths: []string{}, fields: &fieldSet{raw: found[4]},
		})
	}
	return managers
}

// ownersOf returns the managers that own any of the changed paths in the new state. A manager that changes a field owns
// the field afterwards, so these are the managers that made the change. A removed field has no owner, unless it was
// part of a value that is owned as a whole.
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
	data, _ := json.Marshal(managers) // Strings can always be marshaled.
	return append(dst, data...)
}

// fieldSet is a node of FieldsV1, the set of fields that server-side apply writes. Its children are parsed when they
// are first accessed.
type fieldSet struct {
	raw      []byte
	children map[string]*fieldSet // by key (f:<name>, k:<keys>, v:<value>, i:<index>); nil until they are parsed
	id       []byte               // for an element: the keys, value or index from the node's key, as JSON
}

func (s *fieldSet) readChildren() {
	s.children = map[string]*fieldSet{}
	w := jsonscan.Open(s.raw, 0, '{')
	for key, value := range w.All {
		name := string(key)
		if kind, id, found := strings.Cut(name, ":"); found && (kind == "f" || id != "") { // "." stands for the node itself.
			child := &fieldSet{raw: value}
			if kind != "f" {
				child.id = []byte(id)
			}
			s.children[name] = child
		}
	}
}

// owns reports whether the set contains the path, a descendant of the path, or an ancestor that is owned as a whole.
func (s *fieldSet) owns(path []jsonpatch.Segment) bool {
	for n := range path {
		if n > 0 && string(s.raw) == "{}" {
			return true
		}
		if s = s.child(&path[n]); s == nil {
			return false
		}
	}
	return len(s.raw) > 0
}

func (s *fieldSet) child(step *jsonpatch.Segment) *fieldSet {
	if s.children == nil {
		s.readChildren()
	}
	if step.Element == nil {
		return s.children["f:"+step.Name]
	}
	for name, set := range s.children {
		if set.isElement(name[0], step) {
			return set
		}
	}
	return nil
}

// isElement reports whether a list element matches the keys (k), the value (v) or the index (i) of the set.
func (s *fieldSet) isElement(kind byte, step *jsonpatch.Segment) bool {
	switch kind {
	case 'i':
		return string(s.id) == strconv.Itoa(step.Index)
	case 'v':
		return sameScalar(s.id, step.Element)
	case 'k':
		w := jsonscan.Open(s.id, 0, '{')
		for key, want := range w.All {
			if value := jsonscan.Member(step.Element, string(key)); value == nil || !sameScalar(value, want) {
				return false
			}
		}
		return s.id[0] == '{' && !w.Bad
	}
	return false
}

// sameScalar compares strings after unescaping them, and other values byte by byte.
func sameScalar(a, b []byte) bool {
	x := jsonscan.Text(a)
	return bytes.Equal(a, b) || x != nil && bytes.Equal(x, jsonscan.Text(b))
}

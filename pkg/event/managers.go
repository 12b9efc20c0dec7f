package event

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// manager is an entry of metadata.managedFields, together with the changed paths that the manager owns.
type manager struct {
	Name        string   `json:"manager"`
	Operation   string   `json:"operation"` // Apply or Update
	Subresource string   `json:"subresource,omitempty"`
	Time        string   `json:"time,omitempty"`
	Paths       []string `json:"paths"`

	fields []byte // fieldsV1: a tree of the owned fields as JSON objects
}

// managersOf parses managedFields. It returns managers without paths, and omits invalid entries.
func managersOf(managedFields []byte) []manager {
	managers := []manager{}
	w := jsonscan.Open(managedFields, 0, '[')
	for _, entry := range w.All {
		m := manager{Paths: []string{}}
		e := jsonscan.Open(entry, 0, '{')
		for e.Next() {
			switch string(e.Key) {
			case "manager":
				m.Name = string(e.Text())
			case "operation":
				m.Operation = string(e.Text())
			case "subresource":
				m.Subresource = string(e.Text())
			case "time":
				m.Time = string(e.Text())
			case "fieldsV1":
				m.fields = e.Value()
			default:
				e.Skip()
			}
		}
		if entry[0] == '{' && !e.Bad {
			managers = append(managers, m)
		}
	}
	return managers
}

// ownersOf returns the managers that own any of the changed paths in the new state. A manager that changes a field owns
// the field afterwards, so these are the managers that made the change. A removed field has no owner, unless it was
// part of a value that is owned as a whole.
func ownersOf(managedFields []byte, changes []jsonpatch.Change) []manager {
	managers := managersOf(managedFields)
	for i := range managers {
		m := &managers[i]
		for n := range changes {
			if c := &changes[n]; hasFields(m.fields) && owns(m.fields, c.Path) {
				m.Paths = append(m.Paths, c.Pointer())
			}
		}
	}
	return slices.DeleteFunc(managers, func(m manager) bool { return len(m.Paths) == 0 })
}

// owns reports whether the tree at the start of fields contains the path, a descendant of the path, or an ancestor
// that is owned as a whole, which has no fields below it.
func owns(fields []byte, path []jsonpatch.Segment) bool {
	if len(path) == 0 || !hasFields(fields) {
		return true
	}
	w := jsonscan.Open(fields, 0, '{')
	for w.Next() {
		if standsFor(w.Key, &path[0]) && owns(fields[w.Pos:], path[1:]) {
			return true
		}
		w.Skip()
	}
	return false
}

// hasFields reports whether the tree at the start of fields has fields in addition to ".", which stands for the parent.
func hasFields(fields []byte) bool {
	w := jsonscan.Open(fields, 0, '{')
	for w.Next() {
		if string(w.Key) != "." {
			return true
		}
		w.Skip()
	}
	return false
}

// standsFor reports whether a field of FieldsV1 stands for a member by its name, or for a list element by its keys,
// value or index. Source: structured-merge-diff, fieldpath/serialize-pe.go.
func standsFor(field []byte, step *jsonpatch.Segment) bool {
	kind, text, _ := bytes.Cut(field, []byte(":"))
	if step.Element == nil {
		return string(kind) == "f" && string(text) == step.Name
	}
	switch string(kind) {
	case "i":
		index, err := strconv.Atoi(string(text))
		return err == nil && index == step.Index
	case "v":
		return equals(text, step.Element)
	case "k":
		w := jsonscan.Open(text, 0, '{')
		for key, want := range w.All {
			if !equals(want, jsonscan.Member(step.Element, string(key))) {
				return false
			}
		}
		return !w.Bad
	}
	return false
}

// equals reports whether two JSON values are equal.
func equals(a, b []byte) bool {
	x, err := value.FromJSON(a)
	if err != nil {
		return false
	}
	y, err := value.FromJSON(b)
	return err == nil && value.Equals(x, y)
}

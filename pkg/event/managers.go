package event

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// manager is an entry of metadata.managedFields, together with the changed paths that the manager owns.
type manager struct {
	Name        string   `json:"manager"`
	Operation   string   `json:"operation"` // Apply or Update
	Subresource string   `json:"subresource,omitempty"`
	Time        string   `json:"time,omitempty"`
	Paths       []string `json:"paths"`

	leaves *fieldpath.Set // the owned fields that contain no other owned field
}

// managersOf parses managedFields. It returns managers without paths, and omits invalid entries.
func managersOf(managedFields []byte) []manager {
	managers := []manager{}
	w := jsonscan.Open(managedFields, 0, '[')
	for _, entry := range w.All {
		var m manager
		if json.Unmarshal(entry, &m) != nil {
			continue
		}
		var fields fieldpath.Set
		_ = fields.FromJSON(bytes.NewReader(jsonscan.Member(entry, "fieldsV1"))) // invalid fieldsV1 owns no fields
		m.Paths, m.leaves = []string{}, fields.Leaves()
		managers = append(managers, m)
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
			if c := &changes[n]; owns(m.leaves, c.Path) {
				m.Paths = append(m.Paths, c.Pointer())
			}
		}
	}
	return slices.DeleteFunc(managers, func(m manager) bool { return len(m.Paths) == 0 })
}

// owns reports whether one of the leaves is the path, a descendant of the path, or an ancestor, which is owned as a
// whole.
func owns(leaves *fieldpath.Set, path []jsonpatch.Segment) (owned bool) {
	leaves.Iterate(func(leaf fieldpath.Path) { // All panics if a loop over it ends early
		for n := range min(len(leaf), len(path)) {
			if !standsFor(&leaf[n], &path[n]) {
				return
			}
		}
		owned = true
	})
	return owned
}

// standsFor reports whether an element of a set stands for a member by its name, or for a list element by its keys,
// value or index.
func standsFor(element *fieldpath.PathElement, step *jsonpatch.Segment) bool {
	switch {
	case step.Element == nil:
		return element.FieldName != nil && *element.FieldName == step.Name
	case element.Index != nil:
		return *element.Index == step.Index
	case element.Value != nil:
		return equals(*element.Value, step.Element)
	case element.Key != nil:
		return !slices.ContainsFunc(*element.Key, func(key value.Field) bool {
			return !equals(key.Value, jsonscan.Member(step.Element, key.Name))
		})
	}
	return false
}

func equals(want value.Value, raw []byte) bool {
	got, err := value.FromJSON(raw)
	return err == nil && value.Equals(want, got)
}

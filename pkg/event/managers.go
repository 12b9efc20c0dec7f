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

	fields *fieldpath.Set
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
		m.Paths, m.fields = []string{}, &fieldpath.Set{}
		_ = m.fields.FromJSON(bytes.NewReader(jsonscan.Member(entry, "fieldsV1"))) // what is not valid owns nothing
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
			c := &changes[n]
			if !isResourceVersion(c.Path) && owns(m.fields, c.Path) {
				m.Paths = append(m.Paths, c.Pointer())
			}
		}
	}
	return slices.DeleteFunc(managers, func(m manager) bool { return len(m.Paths) == 0 })
}

func appendManagers(dst []byte, managers []manager) []byte {
	data, _ := json.Marshal(managers) // Strings can always be marshaled.
	return append(dst, data...)
}

// owns reports whether the set contains the path, a descendant of the path, or an ancestor that is owned as a whole.
func owns(set *fieldpath.Set, path []jsonpatch.Segment) bool {
	for n := range path {
		element, found := find(set, &path[n])
		if !found {
			return false
		}
		below, found := set.Children.Get(element)
		if !found {
			return true // owned as a whole
		}
		set = below
	}
	return !set.Empty()
}

// find returns the element of the set that stands for a step of a path.
func find(set *fieldpath.Set, step *jsonpatch.Segment) (element fieldpath.PathElement, found bool) {
	if step.Element == nil {
		element = fieldpath.FieldNameElement(step.Name)
		_, found = set.Children.Get(element)
		return element, found || set.Members.Has(element)
	}
	match := func(candidate fieldpath.PathElement) {
		if !found && standsFor(&candidate, step) {
			element, found = candidate, true
		}
	}
	set.Children.Iterate(match) // All panics if a loop over it ends early
	set.Members.Iterate(match)
	return element, found
}

// standsFor reports whether an element of a set stands for a list element, by its keys, value or index.
func standsFor(element *fieldpath.PathElement, step *jsonpatch.Segment) bool {
	switch {
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

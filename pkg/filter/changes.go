package filter

import (
	"bytes"
	"fmt"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// ReasonOnlyChanges, ReasonOperations and ReasonWhen are reasons of ResourceFilter.Refusal.
const (
	ReasonOnlyChanges = "onlyChanges"
	ReasonOperations  = "operations"
	ReasonWhen        = "when"
)

// changes are the conditions on what an update touches: ignoreChanges and onlyChanges. Nil: there are none.
type changes struct {
	ignored map[string]*node // by kind; "" for all others
	only    *node            // nil: everything counts
}

// parseChanges compiles the two lists. The mistakes are given to report, with the field and the index of the entry.
func parseChanges(ignore, only []string, report func(field string, index int, err error)) *changes {
	if len(ignore) == 0 && len(only) == 0 {
		return nil
	}
	c := &changes{ignored: map[string]*node{"": {}}}
	presets := changePresets()
	for _, name := range ignore { // each kind has a tree of its own, which holds what is for all kinds too
		for _, p := range presets[name] {
			if c.ignored[p.kind] == nil {
				c.ignored[p.kind] = &node{}
			}
		}
	}
	add := func(kind string, path []string, entry string) {
		for k, tree := range c.ignored {
			if kind == "" || kind == k {
				tree.add(path, entry)
			}
		}
	}
	for _, path := range bookkeeping() {
		add("", path, reasonBookkeeping)
	}
	for i, entry := range ignore {
		if paths, isPreset := presets[entry]; isPreset {
			for _, p := range paths {
				add(p.kind, p.path, entry)
			}
			continue
		}
		path, err := object.ParsePath(entry)
		if err != nil {
			report("ignoreChanges", i, fmt.Errorf("%q %w", entry, err))
			continue
		}
		add("", path, entry)
	}
	if len(only) > 0 {
		c.only = &node{}
	}
	for i, entry := range only {
		path, err := object.ParsePath(entry)
		if err != nil {
			report("onlyChanges", i, fmt.Errorf("%q %w", entry, err))
			continue
		}
		c.only.add(path, entry)
	}
	for _, tree := range c.ignored {
		tree.settle()
	}
	if c.only != nil {
		c.only.settle()
	}
	return c
}

// refusal says why an update is nothing that the rule asks for: the entry of ignoreChanges that names what changed, or
// ReasonOnlyChanges. Empty if it is something. An error means that a state's bytes can't be had.
func (c *changes) refusal(old, obj *object.Object) (reason string, err error) {
	before, err := old.Bytes()
	if err != nil {
		return "", err
	}
	after, err := obj.Bytes()
	if err != nil {
		return "", err
	}
	ignored, ok := c.ignored[obj.Kind()]
	if !ok {
		ignored = c.ignored[""]
	}
	var d comparison
	switch {
	case d.differs(before, after, ignored, c.only, c.only == nil, 0):
		return "", nil
	case c.only != nil && (d.ignored == "" || d.ignored == reasonBookkeeping):
		return ReasonOnlyChanges, nil
	case d.ignored == "":
		return reasonBookkeeping, nil
	}
	return d.ignored, nil
}

// comparison looks for a difference that counts. It compares bytes, and looks into values only where a path leads.
type comparison struct {
	ignored string // the first entry that took a difference
}

// maxNesting bounds how deep lists in lists are compared; no path leads that deep.
const maxNesting = 100

// differs compares two values; a nil one is absent. ignored and only are the places of the two lists here, and all says that
// every difference here counts, as far as it is not ignored.
func (c *comparison) differs(a, b []byte, ignored, only *node, all bool, depth int) bool {
	if bytes.Equal(a, b) {
		return false
	}
	if only != nil && only.entry != "" {
		only, all = nil, true
	}
	switch {
	case !all && only == nil:
		return false // it is not asked for
	case ignored != nil && ignored.entry != "":
		if c.ignored == "" || c.ignored == reasonBookkeeping {
			c.ignored = ignored.entry
		}
		return false
	case ignored == nil && all, depth > maxNesting:
		return true
	}
	first := func(v []byte) byte {
		if i := jsonscan.Space(v, 0); i < len(v) && v[i] != 'n' {
			return v[i]
		}
		return 0 // absent, or null
	}
	switch x, y := first(a), first(b); {
	case x == '{' && y == '{', x == '{' && y == 0, x == 0 && y == '{':
		return c.members(a, b, ignored, only, all, depth)
	case x == '[' && y == '[':
		return c.elements(a, b, ignored, only, all, depth)
	case x == '[' || y == '[':
		return true
	}
	return all
}

func (c *comparison) member(key, a, b []byte, ignored, only *node, all bool, depth int) bool {
	if bytes.Equal(a, b) {
		return false
	}
	name, err := jsonscan.Unquote(key)
	if err != nil {
		return true
	}
	return c.differs(a, b, ignored.child(name), only.child(name), all, depth+1)
}

// members compares two objects, of which one may be absent. The API server writes their members in the same order; where
// they are not, the rest is looked up.
func (c *comparison) members(a, b []byte, ignored, only *node, all bool, depth int) bool {
	before, after := cursorOf(a), cursorOf(b)
	for {
		keyA, valueA, okA := before.Member()
		keyB, valueB, okB := after.Member()
		switch {
		case before.Bad || after.Bad:
			return true
		case !okA && !okB:
			return false
		case okA && okB && bytes.Equal(keyA, keyB):
			if c.member(keyA, valueA, valueB, ignored, only, all, depth) {
				return true
			}
			continue
		}
		rest := map[string][]byte{}
		for ; okA; keyA, valueA, okA = before.Member() {
			rest[string(keyA)] = valueA
		}
		for ; okB; keyB, valueB, okB = after.Member() {
			if c.member(keyB, rest[string(keyB)], valueB, ignored, only, all, depth) {
				return true
			}
			delete(rest, string(keyB))
		}
		for key, value := range rest {
			if c.member([]byte(key), value, nil, ignored, only, all, depth) {
				return true
			}
		}
		return before.Bad || after.Bad
	}
}

// cursorOf an object; of what is absent or null, one without members.
func cursorOf(v []byte) jsonscan.Cursor {
	if i := jsonscan.Space(v, 0); i < len(v) && v[i] == '{' {
		return jsonscan.NewCursor(v[i:])
	}
	return jsonscan.NewCursor([]byte("{}"))
}

// elements compares two lists element by element. One of another length differs.
func (c *comparison) elements(a, b []byte, ignored, only *node, all bool, depth int) bool {
	before, after := jsonscan.NewCursor(a), jsonscan.NewCursor(b)
	ignored, only = ignored.element(), only.element()
	for {
		valueA, okA := before.Element()
		valueB, okB := after.Element()
		switch {
		case before.Bad || after.Bad || okA != okB:
			return true
		case !okA:
			return false
		case c.differs(valueA, valueB, ignored, only, all, depth+1):
			return true
		}
	}
}

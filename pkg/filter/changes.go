package filter

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// changes are the conditions on the parts that an update modifies: ignoreChanges and onlyChanges. If it is nil, there
// are no such conditions.
type changes struct {
	ignored map[string]*node // the key is the kind; "" is for all other kinds
	only    *node            // if nil, all parts count
}

// parseChanges compiles the two lists. For each invalid entry it calls report with the field and the index. It returns
// nil if both lists are empty.
func parseChanges(ignore, only []string, report func(field string, index int, err error)) *changes {
	if len(ignore) == 0 && len(only) == 0 {
		return nil
	}
	presets := changePresets()
	parse := func(field string, entries []string) (paths []namedPath) {
		for i, entry := range entries {
			found, isPreset := presets[entry]
			if !isPreset || field != "ignoreChanges" {
				steps, err := object.ParsePath(entry)
				if err != nil {
					report(field, i, fmt.Errorf("%q %w", entry, err))
				}
				found = []namedPath{{steps: steps}}
			}
			for _, p := range found {
				p.entry = entry
				paths = append(paths, p)
			}
		}
		return paths
	}
	c := &changes{ignored: map[string]*node{}}
	ignored := append(bookkeeping(), parse("ignoreChanges", ignore)...)
	for _, p := range ignored {
		otherKind := func(other namedPath) bool { return other.kind != "" && other.kind != p.kind }
		c.ignored[p.kind] = newNode(slices.DeleteFunc(slices.Clone(ignored), otherKind))
	}
	if len(only) > 0 {
		c.only = newNode(parse("onlyChanges", only))
	}
	return c
}

// refusal returns the reason why an update is suppressed: the entry of ignoreChanges that matches the changed part, or
// ReasonOnlyChanges. It returns an empty string if the change is sent, and an error if the bytes of a state cannot be
// read.
func (c *changes) refusal(of change) (reason string, err error) {
	if c == nil || of.op != event.Updated || of.old == nil {
		return "", nil
	}
	before, err := of.old.Bytes()
	if err != nil {
		return "", err
	}
	after, err := of.now.Bytes()
	if err != nil {
		return "", err
	}
	ignored, ok := c.ignored[of.now.Kind()]
	if !ok {
		ignored = c.ignored[""]
	}
	var d comparison
	switch {
	case d.differs(before, after, place{ignored, c.only, c.only == nil, 0}):
		return "", nil
	case c.only != nil && (d.ignored == "" || d.ignored == reasonBookkeeping):
		return ReasonOnlyChanges, nil
	}
	return cmp.Or(d.ignored, reasonBookkeeping), nil
}

// comparison searches two states for a difference that is not ignored.
type comparison struct {
	ignored string // the first entry that ignored a difference
}

// place is the current position in both objects during a comparison.
type place struct {
	ignored, only *node // nil if no path of the list leads to this place
	all           bool  // every difference counts unless it is ignored
	depth         int
}

func (p place) member(key []byte) place {
	return place{p.ignored.child(key), p.only.child(key), p.all, p.depth + 1}
}

func (p place) element() place {
	return place{p.ignored.element(), p.only.element(), p.all, p.depth + 1}
}

// maxNesting is the maximum depth at which values are compared. Paths are never that long.
const maxNesting = 100

// differs reports whether two values have a difference that is not ignored. nil stands for an absent value. differs
// compares bytes and parses values only if a path leads into them.
func (c *comparison) differs(a, b []byte, p place) bool {
	if bytes.Equal(a, b) {
		return false
	}
	if p.only != nil && p.only.entry != "" {
		p.only, p.all = nil, true
	}
	switch {
	case !p.all && p.only == nil:
		return false
	case p.ignored != nil && p.ignored.entry != "":
		if c.ignored == "" || c.ignored == reasonBookkeeping {
			c.ignored = p.ignored.entry
		}
		return false
	case p.ignored == nil && p.all, p.depth > maxNesting:
		return true
	}
	switch x, y := first(a), first(b); {
	case x == '{' && y == '{', x == '{' && y == 0, x == 0 && y == '{':
		return c.members(a, b, p)
	case x == '[' && y == '[':
		return c.elements(a, b, p)
	case x == '[' || y == '[':
		return true
	}
	return p.all
}

// first returns the first byte of a value, or 0 if the value is absent or null.
func first(value []byte) byte {
	if i := jsonscan.Space(value, 0); i < len(value) && value[i] != 'n' {
		return value[i]
	}
	return 0
}

// members compares two objects, one of which may be absent. The API server usually writes the members of both in the
// same order. After the first member whose position differs, members are matched by name.
func (c *comparison) members(a, b []byte, p place) bool {
	before, after := membersOf(a), membersOf(b)
	for {
		okA, okB := before.Next(), after.Next()
		if okA && okB && bytes.Equal(before.Key, after.Key) {
			if c.differs(before.Value(), after.Value(), p.member(before.Key)) {
				return true
			}
			continue
		}
		if !okA && !okB {
			return before.Bad || after.Bad
		}
		rest := map[string][]byte{}
		for ; okA; okA = before.Next() {
			rest[string(before.Key)] = before.Value()
		}
		for ; okB; okB = after.Next() {
			if c.differs(rest[string(after.Key)], after.Value(), p.member(after.Key)) {
				return true
			}
			delete(rest, string(after.Key))
		}
		for key, value := range rest {
			if c.differs(value, nil, p.member([]byte(key))) {
				return true
			}
		}
		return before.Bad || after.Bad
	}
}

// membersOf returns a walker over the members of an object. An absent object has no members.
func membersOf(object []byte) jsonscan.Walker {
	if object == nil {
		object = []byte("null")
	}
	return jsonscan.Open(object, 0, '{')
}

// elements compares two lists element by element. Lists with different lengths always differ.
func (c *comparison) elements(a, b []byte, p place) bool {
	before, after := jsonscan.Open(a, 0, '['), jsonscan.Open(b, 0, '[')
	for {
		okA, okB := before.Next(), after.Next()
		if !okA || !okB {
			return okA != okB || before.Bad || after.Bad
		}
		if c.differs(before.Value(), after.Value(), p.element()) {
			return true
		}
	}
}

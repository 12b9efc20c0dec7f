package redact

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Path is the list of keys that lead to values inside an object. An empty key stands for all members or elements.
type Path []string

// all reports whether the first step of the path stands for all members or elements.
func (p Path) all() bool { return p[0] == "" }

// is reports whether the given step of the path is the key. Letter case does not matter.
func (p Path) is(step int, key []byte) bool {
	return len(p) > step && bytes.EqualFold([]byte(p[step]), key)
}

// ParsePath parses a path in the notation of [object.ParsePath]. Letter case does not matter, and a path leads through
// a list even without [*]. ParsePath rejects paths to values that identify an object: in metadata, only labels and
// annotations can be hidden.
func ParsePath(text string) (Path, error) {
	keys, err := object.ParsePath(text)
	if err != nil {
		return nil, err
	}
	p := Path(keys)
	for _, name := range []string{"apiVersion", "kind"} {
		if p.is(0, []byte(name)) {
			return nil, fmt.Errorf("would hide %s, which identifies the object", name)
		}
	}
	if p.is(0, []byte("metadata")) && !p.is(1, []byte("labels")) && !p.is(1, []byte("annotations")) {
		return nil, errors.New("would hide the object's identity: in metadata, only labels and annotations can be hidden")
	}
	return p, nil
}

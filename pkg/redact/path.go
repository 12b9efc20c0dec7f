package redact

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Path names values inside of an object by the keys that lead to them. An empty key means all members or elements.
type Path [][]byte

// all reports whether the first step of the path leads to all members or elements.
func (p Path) all() bool { return len(p[0]) == 0 }

// is reports whether a step of the path is a key. Letter case does not matter.
func (p Path) is(step int, key []byte) bool { return len(p) > step && bytes.EqualFold(p[step], key) }

// ParsePath parses a path in the notation of [object.ParsePath]. Letter case does not matter, and a path leads through
// a list without [*] too. Paths to values that identify an object are rejected: of metadata, only labels and
// annotations can be hidden.
func ParsePath(text string) (Path, error) {
	keys, err := object.ParsePath(text)
	if err != nil {
		return nil, err
	}
	p := make(Path, len(keys))
	for n, key := range keys {
		p[n] = []byte(key)
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if p.is(0, []byte(name)) {
			return nil, fmt.Errorf("would hide %s, which identifies the object", name)
		}
	}
	if p.is(0, []byte("metadata")) && !p.is(1, []byte("labels")) && !p.is(1, []byte("annotations")) {
		return nil, errors.New(
			"would hide what identifies the object: of metadata, only labels and annotations can be hidden",
		)
	}
	return p, nil
}

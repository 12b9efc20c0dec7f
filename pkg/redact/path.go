package redact

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// Path names values inside of an object, in the notation of ParsePath.
type Path struct{ steps []step }

// step is one key, or all of them.
type step struct {
	name []byte
	all  bool
}

func (s step) matches(key []byte) bool { return s.all || s.is(key) }

func (s step) is(key []byte) bool { return bytes.EqualFold(s.name, key) }

// ParsePath reads a path in the notation of [object.ParsePath]. Letter case does not matter, and a list is passed through without
// [*] too.
//
// What the bridge knows an object by can't be hidden: of metadata only labels and annotations can.
func ParsePath(text string) (Path, error) {
	keys, err := object.ParsePath(text)
	if err != nil {
		return Path{}, err
	}
	var p Path
	for _, key := range keys {
		p.steps = append(p.steps, step{name: []byte(key), all: key == ""})
	}
	return p, p.check()
}

// check refuses to hide what an object is known by.
func (p Path) check() error {
	top := p.steps[0]
	for _, name := range []string{"apiVersion", "kind"} {
		if top.is([]byte(name)) {
			return fmt.Errorf("would hide %s, which the bridge knows an object by", name)
		}
	}
	if !top.is([]byte("metadata")) {
		return nil
	}
	if len(p.steps) > 1 && (p.steps[1].is([]byte("labels")) || p.steps[1].is([]byte("annotations"))) {
		return nil
	}
	return errors.New("would hide what the bridge knows an object by: of metadata only labels and annotations can be hidden")
}

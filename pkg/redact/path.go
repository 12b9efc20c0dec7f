package redact

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
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

var errEmptyStep = errors.New("has an empty part")

// ParsePath reads keys that are separated by dots, as in spec.containers[*].env[*].value. [*] stands for all elements of a
// list or all members of an object; a list is passed through without it too. A key that has a dot in it is written as in
// metadata.annotations["example.com/token"].
//
// What the bridge knows an object by can't be hidden: of metadata only labels and annotations can.
func ParsePath(text string) (Path, error) {
	var p Path
	for rest, first := text, true; first || rest != ""; first = false {
		s, behind, err := parseStep(rest, first)
		if err != nil {
			return Path{}, err
		}
		p.steps, rest = append(p.steps, s), behind
	}
	return p, p.check()
}

func parseStep(text string, first bool) (s step, rest string, err error) {
	if strings.HasPrefix(text, "[") {
		if rest, ok := strings.CutPrefix(text, "[*]"); ok {
			return step{all: true}, rest, nil
		}
		if quoted, ok := strings.CutPrefix(text, `["`); ok {
			if name, rest, ok := strings.Cut(quoted, `"]`); ok && name != "" {
				return step{name: []byte(name)}, rest, nil
			}
		}
		return s, "", errors.New(`has brackets with something else than * or "a key" in them`)
	}
	if !first {
		rest, ok := strings.CutPrefix(text, ".")
		if !ok {
			return s, "", errors.New("has no dot behind a bracket")
		}
		text = rest
	}
	end := strings.IndexAny(text, ".[")
	if end < 0 {
		end = len(text)
	}
	name := text[:end]
	switch {
	case name == "":
		return s, "", errEmptyStep
	case name == "*":
		return step{all: true}, text[end:], nil
	case strings.ContainsAny(name, " \t\r\n\"'$@?]*"):
		return s, "", fmt.Errorf(`has %q in it: write it as ["key"] if that is a key`, name)
	}
	return step{name: []byte(name)}, text[end:], nil
}

// check refuses to hide what an object is known by.
func (p Path) check() error {
	top := p.steps[0]
	if top.all {
		return errors.New("would hide everything: begin it with the key of a part")
	}
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

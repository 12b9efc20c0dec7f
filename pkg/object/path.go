package object

import (
	"errors"
	"fmt"
	"strings"
)

// ParsePath parses the path of a part of an object. A path consists of keys that are separated by dots, for example
// status.conditions[*].lastHeartbeatTime. [*] means all elements of a list or all members of an object, and becomes an
// empty step. A key that contains a dot is written as in metadata.annotations["example.com/at"]. The first step must be
// a key.
func ParsePath(text string) (path []string, err error) {
	for rest := "." + text; rest != ""; {
		var step string
		if step, rest, err = cutStep(rest, len(path) == 0); err != nil {
			return nil, err
		}
		path = append(path, step)
	}
	if path[0] == "" {
		return nil, errors.New("names everything: begin it with the key of a part")
	}
	return path, nil
}

// cutStep parses the first step of text, including the dot before it.
func cutStep(text string, first bool) (step, rest string, err error) {
	if first && strings.HasPrefix(text, ".[") {
		text = text[1:]
	}
	if rest, ok := strings.CutPrefix(text, "[*]"); ok {
		return "", rest, nil
	}
	if quoted, ok := strings.CutPrefix(text, `["`); ok {
		name, rest, closed := strings.Cut(quoted, `"]`)
		if !closed || name == "" {
			return "", "", errors.New(`has a bracket without "key"] behind it`)
		}
		return name, rest, nil
	}
	if strings.HasPrefix(text, "[") {
		return "", "", errors.New(`has brackets with something else than * or "key" in them`)
	}
	text, dot := strings.CutPrefix(text, ".")
	if !dot {
		return "", "", errors.New("has no dot after a bracket")
	}
	end := strings.IndexAny(text, ".[")
	if end < 0 {
		end = len(text)
	}
	step, rest = text[:end], text[end:]
	switch {
	case step == "":
		return "", "", errors.New("has an empty part")
	case step == "*":
		return "", rest, nil
	case strings.ContainsAny(step, " \t\r\n\"'$@?]*/"):
		return "", "", fmt.Errorf(`has %q in it: write it as ["key"] if that is a key`, step)
	}
	return step, rest, nil
}

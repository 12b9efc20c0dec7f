package object

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// pathStep matches one step of a path: .key or ["key"], whose key is a group, or .* or [*].
var pathStep = regexp.MustCompile(`^(?:\.([^\s.\[\]"'$@?*/]+)|\["((?:[^"]|"[^\]])+?)"\]|\.\*|\[\*\])`)

// ParsePath parses the path of a part of an object. A path consists of keys that are separated by dots, for example
// status.conditions[*].lastHeartbeatTime. [*] means all elements of a list or all members of an object, and becomes an
// empty step. A key that contains a dot is written as in metadata.annotations["example.com/at"]. The first step must be
// a key.
func ParsePath(text string) (path []string, err error) {
	rest := text
	if !strings.HasPrefix(text, "[") {
		rest = "." + text
	}
	for rest != "" {
		step := pathStep.FindStringSubmatch(rest)
		if step == nil {
			return nil, fmt.Errorf(`is not a valid path: %q does not begin with .key, ["key"] or [*]`, rest)
		}
		path = append(path, step[1]+step[2])
		rest = rest[len(step[0]):]
	}
	if path[0] == "" {
		return nil, errors.New("selects everything: begin it with a key")
	}
	return path, nil
}

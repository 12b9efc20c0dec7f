package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// node is a place in an object, in a tree of the paths that a rule names.
type node struct {
	entry string           // what named this place; empty if paths only lead through it
	named map[string]*node // members
	all   *node            // all members, or all elements
}

// child is the place of a member, or of an element of a list with an empty name; nil if no path leads there.
func (n *node) child(name string) *node {
	if n == nil {
		return nil
	}
	if c := n.named[name]; c != nil {
		return c
	}
	return n.all
}

// element is the place of a list's elements: paths go through a list with [*] and without.
func (n *node) element() *node {
	if n == nil || n.all == nil {
		return n
	}
	return n.all
}

// add a path that an entry names. An empty step stands for all.
func (n *node) add(path []string, entry string) {
	if len(path) == 0 {
		if n.entry == "" {
			n.entry = entry
		}
		return
	}
	if path[0] == "" {
		if n.all == nil {
			n.all = &node{}
		}
		n.all.add(path[1:], entry)
		return
	}
	if n.named == nil {
		n.named = map[string]*node{}
	}
	if n.named[path[0]] == nil {
		n.named[path[0]] = &node{}
	}
	n.named[path[0]].add(path[1:], entry)
}

// settle lets what is said of all members hold for the named ones too. It follows the last add.
func (n *node) settle() {
	for _, c := range n.named {
		if n.all != nil {
			n.all.each(nil, c.add)
		}
		c.settle()
	}
	if n.all != nil {
		n.all.settle()
	}
}

// each gives every path below n.
func (n *node) each(prefix []string, f func(path []string, entry string)) {
	if n.entry != "" {
		f(prefix, n.entry)
	}
	prefix = slices.Clip(prefix)
	for name, c := range n.named {
		c.each(append(prefix, name), f)
	}
	if n.all != nil {
		n.all.each(append(prefix, ""), f)
	}
}

// parsePath reads keys that are separated by dots, as in status.conditions[*].lastHeartbeatTime. [*] stands for all elements
// of a list or all members of an object. A key that has a dot in it is written as in metadata.annotations["example.com/at"].
func parsePath(text string) (path []string, err error) {
	for rest, first := text, true; first || rest != ""; first = false {
		var step string
		switch {
		case strings.HasPrefix(rest, "[*]"):
			rest = rest[len("[*]"):]
		case strings.HasPrefix(rest, `["`):
			name, behind, closed := strings.Cut(rest[len(`["`):], `"]`)
			if !closed || name == "" {
				return nil, errors.New(`has a bracket without "key"] behind it`)
			}
			step, rest = name, behind
		case strings.HasPrefix(rest, "["):
			return nil, errors.New(`has brackets with something else than * or "key" in them`)
		default:
			if !first {
				var dot bool
				if rest, dot = strings.CutPrefix(rest, "."); !dot {
					return nil, errors.New("has no dot behind a bracket")
				}
			}
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			step, rest = rest[:end], rest[end:]
			switch {
			case step == "":
				return nil, errors.New("has an empty part")
			case step == "*":
				step = ""
			case strings.ContainsAny(step, " \t\r\n\"'$@?]*/"):
				return nil, fmt.Errorf(`has %q in it: write it as ["key"] if that is a key`, step)
			}
		}
		path = append(path, step)
	}
	if path[0] == "" {
		return nil, errors.New("names everything: begin it with the key of a part")
	}
	return path, nil
}

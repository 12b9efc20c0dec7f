package filter

import (
	"cmp"
	"slices"
)

// namedPath is a path to a part of an object, from an entry of a rule. An empty step stands for all members or
// elements.
type namedPath struct {
	kind  string // the path applies only to this kind; if empty, to all kinds
	steps []string
	entry string
}

// node is a node in a tree of paths. It represents one place in an object.
type node struct {
	entry string           // the entry whose path ends here; empty if paths only pass through
	named map[string]*node // members
	all   *node            // all members that are not in named, or all elements of a list
}

// newNode returns the root of a tree of paths. If several paths end at the same place, the first path takes precedence.
func newNode(paths []namedPath) *node {
	n, below := &node{}, map[string][]namedPath{}
	for _, p := range paths {
		if len(p.steps) == 0 {
			n.entry = cmp.Or(n.entry, p.entry)
			continue
		}
		step := p.steps[0]
		p.steps = p.steps[1:]
		below[step] = append(below[step], p)
	}
	all := below[""]
	for step, paths := range below {
		if step == "" {
			n.all = newNode(all)
			continue
		}
		if n.named == nil {
			n.named = map[string]*node{}
		}
		n.named[step] = newNode(slices.Concat(paths, all))
	}
	return n
}

// child returns the node of a member, or nil if no path leads there.
func (n *node) child(key []byte) *node {
	if n == nil {
		return nil
	}
	if c := n.named[string(key)]; c != nil {
		return c
	}
	return n.all
}

// element returns the node of a list's elements. A path leads into a list with or without [*].
func (n *node) element() *node {
	if n == nil || n.all == nil {
		return n
	}
	return n.all
}

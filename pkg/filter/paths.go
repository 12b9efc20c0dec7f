package filter

import (
	"cmp"
	"slices"
)

// namedPath is a place in objects that an entry of a rule names. An empty step means all members or elements.
type namedPath struct {
	kind  string // the path applies only to objects of this kind; empty: to all kinds
	steps []string
	entry string
}

// node is a place in an object, in a tree of paths.
type node struct {
	entry string           // the entry that names this place; empty if paths only lead through it
	named map[string]*node // members
	all   *node            // all members without a node in named, or all elements
}

// newNode returns the tree of some paths. If several paths name the same place, the first one wins.
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

// child returns the place of a member. It returns nil if no path leads there.
func (n *node) child(name string) *node {
	if n == nil {
		return nil
	}
	if c := n.named[name]; c != nil {
		return c
	}
	return n.all
}

// element returns the place of a list's elements: paths lead through a list with [*] and without.
func (n *node) element() *node {
	if n == nil || n.all == nil {
		return n
	}
	return n.all
}

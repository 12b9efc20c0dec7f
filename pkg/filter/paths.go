package filter

import "slices"

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

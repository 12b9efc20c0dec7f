package fifo

const (
	// maxFree is the maximum number of unused nodes that a Compacting queue keeps.
	maxFree = 256
	// An empty Compacting queue keeps its map only if the map never had more than maxSpread keys.
	maxSpread = 1024
)

// node is a waiting item of a Compacting queue.
type node[T any, K comparable] struct {
	v     T
	size  int64
	key   K    // valid if keyed
	keyed bool // the item is mergeable
	// older and newer are the neighbors among the waiting items of the same key. Links never lead to a node that was taken
	// or merged, because such a node is always the oldest of its key.
	older, newer *node[T, K]
	prev, next   *node[T, K] // neighbors in the chain
}

// chain is an intrusive doubly linked list: any node can be removed in O(1) and without allocation.
type chain[T any, K comparable] struct {
	head, tail *node[T, K]
	n          int
}

// push appends n, which must not be in the chain.
func (c *chain[T, K]) push(n *node[T, K]) {
	n.prev = c.tail
	if c.tail == nil {
		c.head = n
	} else {
		c.tail.next = n
	}
	c.tail = n
	c.n++
}

// remove removes n, which must be in the chain.
func (c *chain[T, K]) remove(n *node[T, K]) {
	if n.prev == nil {
		c.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		c.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
	c.n--
}

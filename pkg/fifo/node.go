package fifo

const (
	// minFree is how many unused nodes a Compacting queue may keep when it is empty.
	minFree = 256
	// maxSpread is how many keys the map of a Compacting queue may have had to be kept when it is empty.
	maxSpread = 1024
)

// node is a waiting item of a Compacting queue.
type node[T any, K comparable] struct {
	v     T
	size  int64
	key   K    // valid if keyed
	keyed bool // the item is mergeable
	// older and newer are the neighbors among the waiting items of the same key. Links never lead to a node that is
	// taken or merged away, since those are always the oldest of their key.
	older, newer *node[T, K]
	prev, next   *node[T, K] // neighbors in the chain
}

// chain is a doubly linked list through the nodes themselves, so that a node leaves from anywhere in O(1) and
// without allocation.
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

// nodePool keeps nodes for reuse, linked by newer, so that a queue in steady use does not allocate.
type nodePool[T any, K comparable] struct {
	head *node[T, K]
	n    int
}

// get returns a zero node.
func (p *nodePool[T, K]) get() *node[T, K] {
	n := p.head
	if n == nil {
		return new(node[T, K])
	}
	p.head, n.newer = n.newer, nil
	p.n--
	return n
}

// put clears n and keeps it for reuse. It releases nodes above the number that a queue with so many waiting items may
// keep: at most two, because the limit changes by at most one between two calls.
func (p *nodePool[T, K]) put(n *node[T, K], waiting int) {
	*n = node[T, K]{newer: p.head}
	p.head = n
	p.n++
	for p.n > max(minFree, waiting) {
		p.head = p.head.newer
		p.n--
	}
}

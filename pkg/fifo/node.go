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
	prev, next   *node[T, K] // neighbors among all waiting items, which are a ring with Compacting.end
}

// insertBefore adds n, which must not be in the ring.
func (n *node[T, K]) insertBefore(next *node[T, K]) {
	n.prev, n.next = next.prev, next
	n.prev.next, next.prev = n, n
}

// unlink removes n from the ring.
func (n *node[T, K]) unlink() {
	n.prev.next, n.next.prev = n.next, n.prev
}

package fifo

// CompactingOptions configures a [Compacting] queue. The functions are called with the queue locked: see the
// package comment.
type CompactingOptions[T any, K comparable] struct {
	// MaxItems bounds the items that wait and are taken, together. Required.
	MaxItems int
	// MaxBytes bounds the sum of their sizes. 0: no such bound.
	MaxBytes int64
	// Size is an item's size in bytes; it must not change while the item is queued. Nil: every item has 0 bytes.
	Size func(T) int64
	// Key says which items may be merged with each other, such as an object's uid. It must not change while the item
	// is queued. Required.
	Key func(T) K
	// Mergeable reports whether an item may be merged at all; of those that may not, Key is not asked. Nil: all may.
	Mergeable func(T) bool
	// Merge gives the item that stands for both; it takes newer's place, and must have newer's key and be mergeable.
	// It should not be larger than both together. It changes neither argument, and its result may be thrown away:
	// it is then called again later. Required.
	Merge func(older, newer T) T
	// OnMerge, if set, is called with each older item that was merged away.
	OnMerge func(older T)
}

// Compacting is a [Queue] that, when it is full, merges waiting items of the same key. Each merge costs O(1).
type Compacting[T any, K comparable] struct {
	core[T]
	key       func(T) K
	mergeable func(T) bool
	merge     func(older, newer T) T
	onMerge   func(T)

	// waiting are all items that wait, oldest first. Taken items are not in it: no merge can reach them.
	waiting chain[T, K]
	// search is where the search for items to merge goes on; nil: at the next item that is pushed. Invariant: no item in
	// front of it has an older waiting item of its key. While pushes wait, and the policy is not suspended, no item has.
	search *node[T, K]
	// latest has the newest waiting item of each key. Invariant: it is the end of the chain of newer links that leads
	// through all waiting mergeable items of that key in order of age.
	latest map[K]*node[T, K]
	// spread is an upper bound of how many keys latest held at a time: maps do not shrink.
	spread int
	// free are nodes to use again. Invariant: not more than there are waiting items, or minFree.
	free nodePool[T, K]
}

var _ Queue[int] = (*Compacting[int, int])(nil)

// NewCompacting makes a [Compacting] queue. It panics if opts lacks a required field.
func NewCompacting[T any, K comparable](opts CompactingOptions[T, K]) Queue[T] {
	if opts.Key == nil || opts.Merge == nil {
		panic("fifo: Key and Merge are required")
	}
	c := &Compacting[T, K]{
		key: opts.Key, mergeable: opts.Mergeable, merge: opts.Merge, onMerge: opts.OnMerge,
		latest: map[K]*node[T, K]{},
	}
	c.init(c, opts.MaxItems, opts.MaxBytes, opts.Size)
	return c
}

// offer implements policy.
func (c *Compacting[T, K]) offer(v T, size int64, behind bool) bool {
	var key K
	keyed := c.mergeable == nil || c.mergeable(v)
	if keyed {
		key = c.key(v)
	}
	if !behind {
		for !c.holding && !c.fits(size) && c.mergeFirst() {
		}
		if c.fits(size) {
			c.enqueue(v, size, key, keyed)
			return true
		}
	}
	return !c.holding && keyed && c.replaceLatest(key, v)
}

// enqueue puts v at the end; there must be room.
func (c *Compacting[T, K]) enqueue(v T, size int64, key K, keyed bool) {
	n := c.free.get()
	n.v, n.size, n.key, n.keyed = v, size, key, keyed
	c.waiting.push(n)
	if c.search == nil {
		c.search = n
	}
	if keyed {
		if older := c.latest[key]; older != nil {
			older.newer, n.older = n, older
		}
		c.latest[key] = n
		c.spread = max(c.spread, len(c.latest))
	}
	c.add(size)
	c.pushed++
}

// mergeFirst merges the item that has been superseded for the longest time into its successor, which is the first item
// with an older one of its key. It returns false if there is none.
func (c *Compacting[T, K]) mergeFirst() bool {
	for c.search != nil && c.search.older == nil {
		c.search = c.search.next
	}
	newer := c.search
	if newer == nil {
		return false
	}
	older := newer.older
	v := c.merge(older.v, newer.v)
	size := c.sizeOf(v)
	c.bytes += size - newer.size
	newer.v, newer.size = v, size
	c.remove(older.size)
	c.mergedAway(older.v)
	c.discard(older)
	return true
}

// replaceLatest merges the newest waiting item of the key into v and puts the result at the end, if it fits there
// once that item is gone. Nothing is superseded when it is called, so the key has this one item and no link leads
// to its node.
func (c *Compacting[T, K]) replaceLatest(key K, v T) bool {
	n := c.latest[key]
	if n == nil {
		return false
	}
	merged := c.merge(n.v, v)
	size := c.sizeOf(merged)
	c.remove(n.size)
	if !c.fits(size) {
		c.add(n.size)
		return false
	}
	c.add(size)
	older := n.v
	n.v, n.size = merged, size
	c.unchain(n)
	c.waiting.push(n)
	c.pushed++
	c.mergedAway(older)
	return true
}

// mergedAway counts an item that lives on in a newer one only.
func (c *Compacting[T, K]) mergedAway(older T) {
	c.merged++
	if c.onMerge != nil {
		c.onMerge(older)
	}
}

// unchain removes n from the waiting items.
func (c *Compacting[T, K]) unchain(n *node[T, K]) {
	if c.search == n {
		c.search = n.next
	}
	c.waiting.remove(n)
}

// discard removes n, which is the oldest waiting item of its key or has none.
func (c *Compacting[T, K]) discard(n *node[T, K]) {
	c.unchain(n)
	switch {
	case n.newer != nil:
		n.newer.older = nil
	case n.keyed:
		delete(c.latest, n.key)
		if len(c.latest) == 0 && c.spread > maxSpread {
			c.latest, c.spread = map[K]*node[T, K]{}, 0
		}
	}
	c.free.put(n, c.waiting.n)
}

// front implements policy.
func (c *Compacting[T, K]) front() (int64, bool) {
	if c.waiting.head == nil {
		return 0, false
	}
	return c.waiting.head.size, true
}

// pop implements policy.
func (c *Compacting[T, K]) pop() (T, int64) {
	n := c.waiting.head
	v, size := n.v, n.size
	c.discard(n)
	return v, size
}

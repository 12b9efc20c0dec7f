package fifo

// CompactingOptions configures a [Compacting] queue. The functions are called with the queue locked: see the
// package comment.
type CompactingOptions[T any, K comparable] struct {
	// MaxItems bounds the number of waiting and taken items together. Required.
	MaxItems int
	// MaxBytes bounds the total size of these items. 0 means no bound.
	MaxBytes int64
	// Size returns an item's size in bytes, which must not change while the item is queued. If Size is nil, all sizes are
	// 0.
	Size func(T) int64
	// Key returns the same value for items that may be merged with each other, such as an object's uid. The value must not
	// change while the item is queued. Required.
	Key func(T) K
	// Mergeable reports whether an item may be merged. Key is called only for items that may be merged. Required.
	Mergeable func(T) bool
	// Merge returns the item that replaces both arguments. The result takes the place of newer, must have the key of newer
	// and must be mergeable. It should not be larger than both arguments together. Merge must not change its arguments.
	// The queue may ignore the result and call Merge again later. Required.
	Merge func(older, newer T) T
	// OnMerge is called with every item that was merged into a newer item. Required.
	OnMerge func(older T)
}

// Compacting is a [Queue] that, when it is full, merges waiting items of the same key. Each merge costs O(1).
type Compacting[T any, K comparable] struct {
	core[T]
	key       func(T) K
	mergeable func(T) bool
	merge     func(older, newer T) T
	onMerge   func(T)

	// end is not an item. The oldest waiting item follows it, and the newest one precedes it.
	end node[T, K]
	// search is the item at which the search for items to merge continues. If it is &end, the search continues at the next
	// item that is pushed. Invariant: for every item before search, no older item of the same key waits. While pushes wait
	// and the policy is not suspended, this is true for all items.
	search *node[T, K]
	// latest contains the newest waiting item of every key. Invariant: the older links of this item lead to all waiting
	// mergeable items of the key.
	latest map[K]*node[T, K]
	// spread is at least the largest number of keys that the map in latest ever had, because maps do not shrink.
	spread int
	// free contains up to maxFree zero nodes for reuse, so that a queue in steady use does not allocate.
	free []*node[T, K]
}

var _ Queue[int] = (*Compacting[int, int])(nil)

// NewCompacting returns a [Compacting] queue. It panics if opts has no bound on items.
func NewCompacting[T any, K comparable](opts CompactingOptions[T, K]) Queue[T] {
	c := &Compacting[T, K]{
		key: opts.Key, mergeable: opts.Mergeable, merge: opts.Merge, onMerge: opts.OnMerge,
		latest: map[K]*node[T, K]{},
	}
	c.end.prev, c.end.next, c.search = &c.end, &c.end, &c.end
	c.init(c, opts.MaxItems, opts.MaxBytes, opts.Size)
	return c
}

// offer implements policy.
func (c *Compacting[T, K]) offer(v T, size int64, behind bool) bool {
	var key K
	keyed := c.mergeable(v)
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

// enqueue appends v. There must be room.
func (c *Compacting[T, K]) enqueue(v T, size int64, key K, keyed bool) {
	if len(c.free) == 0 {
		c.free = append(c.free, new(node[T, K]))
	}
	last := len(c.free) - 1
	n := c.free[last]
	c.free = c.free[:last]
	n.v, n.size, n.key, n.keyed = v, size, key, keyed
	n.insertBefore(&c.end)
	if c.search == &c.end {
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

// mergeFirst merges the item that was superseded first into its successor. The successor is the first item for which an
// older item of the same key waits. mergeFirst returns false if no items can be merged.
func (c *Compacting[T, K]) mergeFirst() bool {
	for c.search != &c.end && c.search.older == nil {
		c.search = c.search.next
	}
	newer := c.search
	if newer == &c.end {
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

// replaceLatest merges the waiting item of the key into v and appends the result, if there is room for the result
// without the waiting item. It must be called only if mergeFirst has nothing left to merge. Then at most one item of
// the key waits, and no link leads to it.
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
	n.insertBefore(&c.end)
	c.pushed++
	c.mergedAway(older)
	return true
}

// mergedAway counts an item that was merged into a newer item, and calls OnMerge.
func (c *Compacting[T, K]) mergedAway(older T) {
	c.merged++
	c.onMerge(older)
}

// unchain removes n from the waiting items.
func (c *Compacting[T, K]) unchain(n *node[T, K]) {
	if c.search == n {
		c.search = n.next
	}
	n.unlink()
}

// discard removes n, which must be the oldest waiting item of its key or have no key.
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
	*n = node[T, K]{}
	if len(c.free) < maxFree {
		c.free = append(c.free, n)
	}
}

// front implements policy.
func (c *Compacting[T, K]) front() (int64, bool) {
	return c.end.next.size, c.end.next != &c.end
}

// pop implements policy.
func (c *Compacting[T, K]) pop() (T, int64) {
	n := c.end.next
	v, size := n.v, n.size
	c.discard(n)
	return v, size
}

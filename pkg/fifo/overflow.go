package fifo

// overflow applies the overflow policy to a push for which there is no room, and reports whether v was accepted. The
// policy does not apply to the oldest item of buf, because Run may be writing it.
func (q *Queue[T]) overflow(v T, size int64) bool {
	switch {
	case q.opts.Gap != nil:
		q.dropFor(v, size)
		return true
	case q.opts.Merge != nil:
		return q.mergeFor(v, size)
	}
	return false
}

// dropFor drops the oldest items until v fits, and accepts v. If v does not fit after that, it is dropped too.
func (q *Queue[T]) dropFor(v T, size int64) {
	n := q.buf.oldest().next
	for n.gap {
		n = n.next
	}
	for ; n != &q.buf.end && !q.hasRoom(size); n = n.next {
		q.buf.remove(n)
		q.drop(n.v, n.next)
	}
	if q.hasRoom(size) {
		q.enqueue(v, size)
		return
	}
	q.stats.Pushed++
	q.drop(v, n)
}

// drop counts v as dropped and replaces it with a gap item before next. Between buf's oldest item and next, there must
// be only gap items.
func (q *Queue[T]) drop(v T, next *node[T]) {
	q.stats.Dropped++
	for n := q.buf.oldest().next; n != next; n = n.next {
		if gap, ok := q.opts.Gap(n.v, v); ok {
			n.v, n.size = gap, q.sizeOf(gap)
			return
		}
	}
	var none T
	if gap, ok := q.opts.Gap(none, v); ok {
		q.buf.insert(&node[T]{v: gap, size: q.sizeOf(gap), gap: true}, next)
	}
}

// mergeFor merges items until v fits, and accepts v. If v does not fit after that, it can only replace the item of its
// key.
func (q *Queue[T]) mergeFor(v T, size int64) bool {
	if q.latest == nil {
		q.latest, q.search = map[string]*node[T]{}, &q.buf.end
		for n := range q.buf.all() {
			q.link(n)
		}
	}
	for !q.hasRoom(size) && q.mergeFirst() {
	}
	if q.hasRoom(size) {
		q.enqueue(v, size)
		return true
	}
	return q.replaceLatest(v)
}

// mergeFirst merges the item that was superseded first into its successor. The successor is the first item for which an
// older item of the same key waits. mergeFirst returns false if no items can be merged.
func (q *Queue[T]) mergeFirst() bool {
	for q.search != &q.buf.end && q.search.older == nil {
		q.search = q.search.next
	}
	newer := q.search
	if newer == &q.buf.end {
		return false
	}
	older := newer.older
	q.unlink(older)
	q.buf.remove(older)
	v := q.opts.Merge(older.v, newer.v)
	size := q.sizeOf(v)
	q.buf.bytes += size - newer.size
	newer.v, newer.size = v, size
	q.mergedAway(older.v)
	return true
}

// replaceLatest merges the waiting item of v's key into v and appends the result, if there is room for the result
// without the waiting item. It must be called only if mergeFirst has nothing left to merge.
func (q *Queue[T]) replaceLatest(v T) bool {
	n := q.latest[q.opts.Key(v)]
	if n == nil {
		return false
	}
	merged := q.opts.Merge(n.v, v)
	size := q.sizeOf(merged)
	next := n.next
	q.buf.remove(n)
	if !q.hasRoom(size) {
		q.buf.insert(n, next)
		return false
	}
	older := n.v
	n.v, n.size = merged, size
	q.buf.push(n)
	q.stats.Pushed++
	q.mergedAway(older)
	return true
}

// mergedAway counts an item that was merged into a newer item, and calls OnMerge.
func (q *Queue[T]) mergedAway(older T) {
	q.stats.Merged++
	q.opts.OnMerge(older)
}

// link adds n, the newest item of buf, to the items that can be merged, if the queue merges items.
func (q *Queue[T]) link(n *node[T]) {
	if q.latest == nil || n == q.buf.oldest() {
		return
	}
	if q.search == &q.buf.end {
		q.search = n
	}
	key := q.opts.Key(n.v)
	if key == "" {
		return
	}
	if older := q.latest[key]; older != nil {
		older.newer, n.older = n, older
	}
	q.latest[key] = n
}

// unlink removes n from the items that can be merged. The caller must ensure that n is the oldest item of its key.
func (q *Queue[T]) unlink(n *node[T]) {
	if q.search == n {
		q.search = n.next
	}
	if n.newer != nil {
		n.newer.older, n.newer = nil, nil
	} else if q.latest != nil {
		delete(q.latest, q.opts.Key(n.v))
	}
}

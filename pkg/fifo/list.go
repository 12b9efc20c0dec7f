package fifo

import "iter"

// node is an item in memory.
type node[T any] struct {
	v    T
	size int64
	seq  uint64 // number of the item; not valid in Queue.buf, because the policy can change the numbers there
	gap  bool   // the item is a gap item

	prev, next *node[T] // neighbors in the list
	// older and newer are the neighbors among the items of the same key that can be merged; see Queue.latest.
	older, newer *node[T]
}

// list is a list of items, oldest first. It counts its items.
type list[T any] struct {
	end   node[T] // not an item; precedes the oldest item and follows the newest one
	items int     // number of items without gap items
	gaps  int     // number of gap items
	bytes int64   // total size of the items without gap items
}

func (l *list[T]) init() { l.end.prev, l.end.next = &l.end, &l.end }

// len returns the number of items, including gap items.
func (l *list[T]) len() int { return l.items + l.gaps }

// oldest returns the oldest item, or nil if the list is empty.
func (l *list[T]) oldest() *node[T] {
	if l.end.next == &l.end {
		return nil
	}
	return l.end.next
}

// all returns the items, oldest first.
func (l *list[T]) all() iter.Seq[*node[T]] {
	return func(yield func(*node[T]) bool) {
		for n := l.end.next; n != &l.end && yield(n); n = n.next {
		}
	}
}

// push appends n, which must not be in a list.
func (l *list[T]) push(n *node[T]) { l.insert(n, &l.end) }

// insert inserts n, which must not be in a list, before next.
func (l *list[T]) insert(n, next *node[T]) {
	n.prev, n.next = next.prev, next
	n.prev.next, next.prev = n, n
	l.count(n, 1)
}

// remove removes n.
func (l *list[T]) remove(n *node[T]) {
	n.prev.next, n.next.prev = n.next, n.prev
	l.count(n, -1)
}

// count adds n to the counts, or subtracts it if sign is -1.
func (l *list[T]) count(n *node[T], sign int) {
	if n.gap {
		l.gaps += sign
		return
	}
	l.items += sign
	l.bytes += int64(sign) * n.size
}

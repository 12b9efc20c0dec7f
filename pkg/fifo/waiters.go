package fifo

// waiter is a push that waits for room. Whoever lets it in or refuses it sets err and then closes done, with the
// core's lock held.
type waiter[T any] struct {
	v          T
	size       int64
	done       chan struct{} // its own, so that the end of one wait wakes one goroutine
	err        error         // nil: taken up. Valid when done is closed
	prev, next *waiter[T]
}

// waiterList is a doubly linked list: a push whose context ends leaves from the middle in O(1).
type waiterList[T any] struct {
	head, tail *waiter[T]
}

// push appends w.
func (l *waiterList[T]) push(w *waiter[T]) {
	w.prev = l.tail
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

// remove takes w, which must be in the list, out of it.
func (l *waiterList[T]) remove(w *waiter[T]) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

package fifo

// Capacities of a deque, powers of two.
const (
	minDeque = 16 // the first
	// keptDeque is the capacity below which a deque does not shrink: 16 KiB or less cost less than repeated
	// allocations in a queue that is empty after each batch.
	keptDeque = 1024
)

// deque is a queue in a circular buffer. The buffer doubles when it is full and halves when a quarter is used, so
// that n operations cost O(n) and memory follows the content: at most 4 slots for an element, or keptDeque.
// The zero value is ready to use.
type deque[E any] struct {
	buf  []E // len is 0 or a power of two; unused slots have the zero value, so that they keep no reference
	head int // index of the oldest element, < len(buf)
	n    int // elements, <= len(buf)
}

// len returns the number of elements.
func (d *deque[E]) len() int { return d.n }

// push appends e.
func (d *deque[E]) push(e E) {
	if d.n == len(d.buf) {
		d.resize(max(minDeque, 2*d.n))
	}
	d.buf[(d.head+d.n)&(len(d.buf)-1)] = e
	d.n++
}

// front returns the oldest element. The deque must not be empty.
func (d *deque[E]) front() *E { return &d.buf[d.head] }

// at returns the element with i older ones before it, 0 <= i < len.
func (d *deque[E]) at(i int) *E { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// pop removes the oldest element. The deque must not be empty.
func (d *deque[E]) pop() E {
	var zero E
	e := d.buf[d.head]
	d.buf[d.head] = zero
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
	d.shrink()
	return e
}

// popBack removes the newest element. The deque must not be empty.
func (d *deque[E]) popBack() E {
	var zero E
	last := d.at(d.n - 1)
	e := *last
	*last = zero
	d.n--
	d.shrink()
	return e
}

// shrink halves a buffer of which less than a quarter is used.
func (d *deque[E]) shrink() {
	if len(d.buf) > keptDeque && d.n < len(d.buf)/4 {
		d.resize(len(d.buf) / 2)
	}
}

// resize moves the content to a buffer of the given capacity, a power of two that is large enough.
func (d *deque[E]) resize(capacity int) {
	buf := make([]E, capacity)
	tail := copy(buf[:d.n], d.buf[d.head:])
	copy(buf[tail:d.n], d.buf)
	d.buf, d.head = buf, 0
}

package fifo

// These are the capacities of a deque. They must be powers of two.
const (
	minDeque = 16 // initial capacity
	// A deque does not shrink below the capacity keptDeque. In a queue that is empty after every batch, keeping 16 KiB or
	// less costs less than allocating the buffer again and again.
	keptDeque = 1024
)

// deque is a queue in a circular buffer. The buffer doubles when it is full and is halved when less than a quarter of
// it is used, so n operations cost O(n) and memory use follows the content: the buffer has at most 4 slots per element,
// or keptDeque slots. The zero value is ready to use.
type deque[E any] struct {
	buf  []E // len is 0 or a power of two; unused slots are zero, so they do not hold references
	head int // index of the oldest element, < len(buf)
	n    int // number of elements, <= len(buf)
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

// at returns the element that has i older elements before it, with 0 <= i < len.
func (d *deque[E]) at(i int) *E { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// pop removes the oldest element. The deque must not be empty.
func (d *deque[E]) pop() E {
	var zero E
	e := d.buf[d.head]
	d.buf[d.head] = zero
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
	if len(d.buf) > keptDeque && d.n < len(d.buf)/4 {
		d.resize(len(d.buf) / 2)
	}
	return e
}

// resize moves the content to a buffer of the given capacity, which must be a power of two and large enough.
func (d *deque[E]) resize(capacity int) {
	buf := make([]E, capacity)
	tail := copy(buf[:d.n], d.buf[d.head:])
	copy(buf[tail:d.n], d.buf)
	d.buf, d.head = buf, 0
}

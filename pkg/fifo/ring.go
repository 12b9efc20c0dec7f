package fifo

// Overflow is the overflow policy of a [Ring].
type Overflow uint8

const (
	// Block makes the push wait. Nothing is lost.
	Block Overflow = iota
	// DropOldest drops the oldest waiting items until the new one fits. Push never waits.
	DropOldest
)

// RingOptions configures a [Ring]. The functions are called with the queue locked: see the package comment.
type RingOptions[T any] struct {
	// MaxItems bounds the number of waiting and taken items together. Required.
	MaxItems int
	// MaxBytes bounds the total size of these items. 0 means no bound.
	MaxBytes int64
	// Size returns an item's size in bytes, which must not change while the item is queued. If Size is nil, all sizes are
	// 0.
	Size func(T) int64
	// Overflow is the policy for a push to a full queue.
	Overflow Overflow
	// Gap adds an item that DropOldest drops to the gap items in front of the oldest waiting item, and returns the new gap
	// items. It may change gaps and its items and append to gaps, but must not keep gaps. When there are no gap items yet,
	// or the previous gap items were taken, gaps is nil. The bounds do not apply to gap items, so there should be few, for
	// example one per resource. Gap is called once for every dropped item, in queue order. Required for DropOldest.
	Gap func(gaps []T, dropped T) []T
}

// entry is a waiting item and its size, so that Size is called once.
type entry[T any] struct {
	v    T
	size int64
}

// Ring is a [Queue] in a circular buffer, with the overflow policies [Block] and [DropOldest].
type Ring[T any] struct {
	core[T]
	overflow Overflow
	gap      func([]T, T) []T

	// waiting contains the waiting items, oldest first. Invariant: ledger.items is the number of waiting and taken items,
	// without gap items.
	waiting deque[entry[T]]
	// gaps contains the gap items in front of waiting. Invariants: gaps is nil if there are no gap items, and ledger.gaps
	// is the number of these and of the taken gap items.
	gaps []T
}

var _ Queue[int] = (*Ring[int])(nil)

// NewRing returns a [Ring]. It panics if opts has no bound on items or an unknown policy.
func NewRing[T any](opts RingOptions[T]) Queue[T] {
	if opts.Overflow > DropOldest {
		panic("fifo: unknown overflow policy")
	}
	r := &Ring[T]{overflow: opts.Overflow, gap: opts.Gap}
	r.init(r, opts.MaxItems, opts.MaxBytes, opts.Size)
	return r
}

// offer implements policy.
func (r *Ring[T]) offer(v T, size int64, behind bool) bool {
	if (r.overflow == Block || r.holding) && (behind || !r.fits(size)) {
		return false
	}
	r.pushed++
	for !r.fits(size) {
		if r.waiting.len() == 0 { // taken items fill the queue, so v is the oldest waiting item
			r.drop(v)
			return true
		}
		oldest := r.waiting.pop()
		r.remove(oldest.size)
		r.drop(oldest.v)
	}
	r.add(size)
	r.waiting.push(entry[T]{v, size})
	return true
}

// drop counts v as dropped and adds it to the gap items.
func (r *Ring[T]) drop(v T) {
	r.dropped++
	before := len(r.gaps)
	r.gaps = r.gap(r.gaps, v)
	r.ledger.gaps += len(r.gaps) - before
}

// front implements policy.
func (r *Ring[T]) front() (int64, bool) {
	if len(r.gaps) > 0 {
		return r.sizeOf(r.gaps[0]), true
	}
	if r.waiting.len() == 0 {
		return 0, false
	}
	return r.waiting.front().size, true
}

// pop implements policy.
func (r *Ring[T]) pop() (T, int64) {
	if len(r.gaps) == 0 {
		e := r.waiting.pop()
		return e.v, e.size
	}
	var zero T
	g := r.gaps[0]
	r.gaps[0] = zero
	r.gaps = r.gaps[1:]
	if len(r.gaps) == 0 {
		r.gaps = nil
	}
	return g, gapCharge
}

package fifo

import (
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/internal/segment"
)

const (
	// syncInterval is the maximum time that a spilled item waits for the commit that makes the item durable.
	syncInterval = 200 * time.Millisecond
	// maxAge is the maximum time that an item waits for its acknowledgement before the queue spills, even if memory is
	// nearly empty. It exists because a source may keep its history only for a limited time.
	maxAge = 10 * time.Second
	// readRetry is the time that Take waits before it tries again to open a file.
	readRetry = time.Second
)

// SpillOptions configures a [Spill]. All fields without a documented default are required. The functions must not call
// the queue. Size, Mark, Since, Receipt and OnCorrupt are called with the queue locked. Encode is called by Run, Decode
// by the consumer's goroutine, and OnSettled by both.
type SpillOptions[T any] struct {
	// Path is the queue's directory. It is created when the queue first spills, with mode 0700, in a directory that must
	// exist. Damaged files are renamed to Path+".damaged-"+time. Only one queue can use a directory at a time.
	Path string
	// MaxItems bounds the items in memory. It must be at least 2.
	MaxItems int
	// MaxBytes bounds the total size of the items in memory. 0 means no bound.
	MaxBytes int64
	// MaxDiskBytes bounds the size of the items on disk. Acknowledged items count while their file contains unacknowledged
	// items. If the bound is reached, pushes wait when memory is full. If no items are on disk, one item is written even
	// if it is larger than the bound. The bound does not apply at the end of Run. 0 means no bound.
	MaxDiskBytes int64
	// Size returns an item's size in memory in bytes, which must not change while the item is queued.
	Size func(T) int64
	// Encode appends the stored form of v to dst. It may run while the consumer uses v. If Encode fails, the item is
	// handled as if it could not be written: the item and all later items stay in memory.
	Encode func(dst []byte, v T) ([]byte, error)
	// Decode returns the item that Encode encoded as data. It may keep data.
	Decode func(data []byte) (T, error)
	// Mark returns an item's source and the item's position in that source, or an empty source if the item does not have
	// one. The items of a source must be pushed in the order of their positions. For every source, the queue stores the
	// last position up to which all items are acknowledged or on disk.
	Mark func(T) (source, position string)
	// OnSettled is called once for each item that is settled: the item was acknowledged or is on disk, so the source does
	// not have to send it again after a crash. The consumer still takes an item that is on disk. While the log has items,
	// an acknowledged item becomes settled only when its acknowledgement is durable, because after a crash the items of
	// the log are returned again and the newer items must follow them. OnSettled is not called for items that an earlier
	// process pushed. OnSettled must not keep the slice.
	OnSettled func(items []T)
	// Receipt returns a small value that is passed to OnSettled instead of an acknowledged item, so that the whole item
	// does not have to be kept until its acknowledgement is durable.
	Receipt func(T) T
	// OnCorrupt is called when items could not be read back. It returns the items that the consumer takes instead of the
	// lost items. The returned items must not have a source (Mark).
	OnCorrupt func(Loss) []T
	// HoldUp is the maximum time that pushes wait for the consumer when a quarter of the bounds is in use. Waiting can
	// avoid spilling, which is expensive: writing items to disk and reading them back costs more than all other work.
	// After HoldUp, pushes are accepted until memory is full, and then the queue spills at once. Once the queue has not
	// been empty for 20 times HoldUp, pushes do not wait because of HoldUp until the queue has been empty again, so a slow
	// consumer delays the source only for a short time. 0 means that pushes do not wait before the queue spills.
	HoldUp time.Duration
	// Since returns the time when an item was created. An item that is older than ten seconds makes the queue spill.
	Since  func(T) time.Time
	Logger *slog.Logger
}

// Loss describes consecutive items that could not be read back.
type Loss struct {
	First, Last uint64            // numbers of the items; 0 if the whole log is lost
	Positions   map[string]string // see [Spill.Positions]; nil if the whole log is lost
	Err         error             // why the items could not be read
}

// Items returns the number of lost items, or 0 if the number is not known.
func (l Loss) Items() int {
	if l.Last == 0 {
		return 0
	}
	return int(l.Last - l.First + 1)
}

// spilled is an item in memory.
type spilled[T any] struct {
	v    T
	size int64
	seq  uint64 // items are numbered in queue order; restarts continue the numbers while items are on disk
}

// mark is a position of a source, and the number of the item with that position.
type mark struct {
	position string
	seq      uint64
}

// share is a part of the bounds.
type share struct {
	items int
	bytes int64 // 0 means no bound
}

// fits reports whether the share has room for an item of this size when it already has this number of items and bytes.
func (s share) fits(items int, bytes, size int64) bool {
	return items < s.items && (s.bytes == 0 || size <= s.bytes-bytes)
}

// Spill is a [Queue] that writes items to disk when they do not fit in memory; see the package comment.
//
// Every unacknowledged item is in one of three places. From the oldest to the newest, these are: head, whose first
// items are taken; the disk alone, for the items with the numbers headEnd+1 to diskEnd(); and buf. Items are pushed to
// buf and taken from head. The core's ledger counts the items in head and buf.
type Spill[T any] struct {
	core[T]
	opts SpillOptions[T]
	log  *segment.Log
	// Run calls onCommit, if it is set, after every attempt to commit. full is true if the commit failed or found no room
	// on disk. onCommit is set only once.
	onCommit func(full bool)
	wake     chan struct{} // capacity 1: wakes Run before the interval ends
	// headShare bounds head. bufShare bounds buf while the queue spills. Together, they are the bounds of the queue.
	headShare, bufShare share
	// commitBytes is the maximum total size (in memory) of the items that one commit writes. If items of this size wait, a
	// commit starts at once. batchBytes is the maximum number of encoded bytes that a commit writes.
	commitBytes, batchBytes int64
	syncInterval, maxAge    time.Duration // the constants of these names, except in tests

	// The following fields are guarded by core.mu.

	// spilling is true while items are on disk or are about to be written. If it is false, no unacknowledged item is on
	// disk, and buf can use the whole bounds.
	spilling bool
	head     deque[spilled[T]] // invariant: the first taken.len() items are the taken items
	headEnd  uint64            // all items up to this number are in head, acknowledged or lost
	buf      deque[spilled[T]] // the newest items, with consecutive numbers up to tail; none is known to be on disk
	tail     uint64            // the newest item's number
	// durable is the number up to which all items are on disk or acknowledged. It is valid only while the queue spills.
	// Invariant: no item between headEnd and buf has a greater number.
	durable uint64

	// due is the number up to which all items must be acknowledged or on disk before the queue may stop spilling.
	due uint64
	// receipts contains the items that were acknowledged before they were on disk and are not settled yet because their
	// acknowledgements are not durable. It is empty while the queue does not spill.
	receipts deque[spilled[T]]
	// released contains the items that the last Ack settled. The consumer's goroutine reuses its memory.
	released []T

	busySince time.Time // when the queue was last empty
	heldSince time.Time // when pushes began to wait because of HoldUp; zero while isShallow returns true

	takenBytes, bufBytes int64 // total sizes of the taken items and of the items in buf

	marks map[string]mark // by source: marks of items that were acknowledged but not written

	errs     int64
	lastErr  string    // empty if the last commit succeeded
	failing  bool      // a disk failure was logged at failedAt
	failedAt time.Time // zero if no failure was logged yet
}

var _ Queue[int] = (*Spill[int])(nil)

// segmentPart limits the size of a segment to 1/segmentPart of MaxDiskBytes. A segment uses disk space until all its
// items are acknowledged.
const segmentPart = 16

// NewSpill returns a [Spill] that starts with the items on disk. Run closes the files. If the log cannot be used or has
// an unknown format, it is quarantined. NewSpill returns an error if Path cannot be opened.
func NewSpill[T any](opts SpillOptions[T]) (*Spill[T], error) {
	segmentBytes := int64(segment.DefaultBytes)
	if opts.MaxDiskBytes > 0 {
		segmentBytes = min(segmentBytes, max(1, opts.MaxDiskBytes/segmentPart))
	}
	log, damage, err := segment.Open(opts.Path, segmentBytes, opts.Logger)
	if err != nil {
		return nil, err
	}
	acked, last := log.Acked(), log.Last()
	s := &Spill[T]{
		opts:         opts,
		log:          log,
		wake:         make(chan struct{}, 1),
		headShare:    share{items: opts.MaxItems - opts.MaxItems/2, bytes: opts.MaxBytes - opts.MaxBytes/2},
		bufShare:     share{items: opts.MaxItems / 2, bytes: opts.MaxBytes / 2},
		commitBytes:  commitBytes,
		batchBytes:   min(commitBytes, segmentBytes),
		syncInterval: syncInterval,
		maxAge:       maxAge,
		spilling:     last > acked,
		headEnd:      acked,
		tail:         last,
		durable:      last,
		marks:        map[string]mark{},
	}
	s.init(s, opts.MaxItems, opts.MaxBytes, opts.Size)
	if damage != nil {
		for _, v := range opts.OnCorrupt(Loss{Err: damage}) { // they are the first items of the new queue
			s.enqueue(v, s.sizeOf(v))
		}
	}
	return s, nil
}

// Positions returns, for each source, the last position up to which all items are acknowledged or on disk. The
// positions are not valid if the queue was opened without items on disk. The caller may change the map.
func (s *Spill[T]) Positions() map[string]string { return s.log.Positions() }

// SpillStats returns the number of unacknowledged items on disk, their size in bytes (including acknowledged items that
// are not removed yet), the size of all files, the number of failed reads and writes, and the last error. The error is
// empty again after a success.
func (s *Spill[T]) SpillStats() (items, bytes, fileBytes, errors int64, lastErr string) {
	bytes = s.log.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if acked := s.ackedUpTo(); s.spilling && s.durable > acked {
		items = int64(s.durable - acked)
	}
	return items, bytes, bytes + segment.StateBytes, s.errs, s.lastErr
}

// PeekSpill returns the number of items on disk of a [Spill] that is not open. It does not change any file.
func PeekSpill(path string) (items int64, err error) { return segment.Peek(path) }

// Stats implements [Queue]. Items is the number of items in memory and on disk. Bytes is the total size of the items in
// memory. Pushed does not include items from an earlier process. Dropped is the number of items that could not be read
// back.
func (s *Spill[T]) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Items: s.items + int(s.diskEnd()-s.headEnd), Bytes: s.bytes, Taken: s.taken.len(),
		Pushed: s.pushed, Acked: s.acked, Dropped: s.dropped, Blocked: s.blocked,
	}
}

// diskEnd returns the number of the newest item that is not in buf.
func (s *Spill[T]) diskEnd() uint64 {
	if s.buf.len() == 0 {
		return s.tail
	}
	return s.buf.front().seq - 1
}

// ackedUpTo returns the number up to which all items are acknowledged or lost.
func (s *Spill[T]) ackedUpTo() uint64 {
	if s.head.len() == 0 {
		return s.headEnd
	}
	return s.head.front().seq - 1
}

func (s *Spill[T]) headBytes() int64 { return s.bytes - s.bufBytes }

// offer implements policy.
func (s *Spill[T]) offer(v T, size int64, behind bool) bool {
	if behind {
		return false
	}
	if !s.spilling {
		if s.items == 0 && s.opts.HoldUp > 0 {
			s.busySince = time.Now()
		}
		if s.isShallow() {
			s.heldSince = time.Time{}
		} else if !s.lifted && s.holdUp() {
			return false
		}
		if s.fits(size) {
			s.enqueue(v, size)
			return true
		}
		s.begin()
		s.kick()
	}
	if !s.lifted && s.buf.len() > 0 && !s.bufShare.fits(s.buf.len(), s.bufBytes, size) {
		if len(s.waiters) == 0 { // otherwise, the first waiter has already woken Run
			s.kick()
		}
		return false
	}
	s.enqueue(v, size)
	if s.pressing() {
		s.kick()
	}
	return true
}

// Pushes wait because of HoldUp when 1/shallowPart of the bounds is in use. A longer queue uses more than its own
// memory: the ledger keeps the states of all waiting items and, if there are too many, makes the queue write them to
// disk.
const shallowPart = 4

// isShallow reports whether the queue is short enough that pushes do not wait because of HoldUp.
func (s *Spill[T]) isShallow() bool {
	return s.items == 0 || s.items < s.maxItems/shallowPart && (s.maxBytes == 0 || s.bytes < s.maxBytes/shallowPart)
}

// Once the queue has not been empty for holdUpPart times HoldUp, pushes do not wait because of HoldUp until the queue
// has been empty again.
const holdUpPart = 20

// holdUp reports whether a push must wait for the consumer. It returns false when pushes have waited long enough.
func (s *Spill[T]) holdUp() bool {
	if s.opts.HoldUp <= 0 {
		return false
	}
	now := time.Now()
	if s.heldSince.IsZero() {
		s.heldSince = now
		s.kick() // Run offers the waiting items again after HoldUp
	}
	return now.Sub(s.heldSince) < s.opts.HoldUp && now.Sub(s.busySince) < holdUpPart*s.opts.HoldUp
}

// enqueue appends v to buf.
func (s *Spill[T]) enqueue(v T, size int64) {
	s.add(size)
	s.pushed++
	s.tail++
	s.buf.push(spilled[T]{v, size, s.tail})
	s.bufBytes += size
}

// begin makes the queue spill.
func (s *Spill[T]) begin() {
	if !s.spilling {
		s.spilling, s.durable, s.heldSince = true, s.ackedUpTo(), time.Time{}
	}
}

// Persist starts writing all current items to disk and returns at once. OnSettled is called when they are on disk.
// Items for which there is no room on disk stay in memory.
func (s *Spill[T]) Persist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.persist()
}

func (s *Spill[T]) persist() {
	if s.ackedUpTo() < s.tail {
		s.begin()
		s.due = s.tail
		s.kick()
	}
}

// pressing reports whether the next commit should start before the interval ends.
func (s *Spill[T]) pressing() bool {
	return len(s.waiters) > 0 || s.bufBytes >= s.commitBytes || s.bufBytes > s.bufShare.bytes/2 && s.bufShare.bytes > 0 ||
		s.buf.len() > s.bufShare.items/2
}

// kick wakes Run.
func (s *Spill[T]) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

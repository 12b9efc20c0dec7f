package fifo

import (
	"errors"
	"log/slog"
	"time"

	"github.com/deltabridge/deltabridge/internal/segment"
)

// DefaultSyncInterval is how long a spilled item waits at most for the commit that makes it durable.
const DefaultSyncInterval = 200 * time.Millisecond

// DefaultMaxAge is how long an item waits at most for its acknowledgement before it is written to disk.
const DefaultMaxAge = 10 * time.Second

// readRetry is how long Take waits before it tries again to open a file that it could not open.
const readRetry = time.Second

// SpillOptions configures a [Spill]. Its functions must not call the queue. Size, Mark, Since, Receipt and OnCorrupt
// are called with the queue locked. Run calls Encode; the consumer's goroutine calls Decode; both call OnSettled.
type SpillOptions[T any] struct {
	// Path is the queue's directory. It is created when the queue first spills, with mode 0700, in a directory that
	// must exist. Damaged files are renamed to Path+".damaged-"+time. Only one queue can use it at a time. Required.
	Path string
	// MaxItems bounds the items in memory. Required, at least 2.
	MaxItems int
	// MaxBytes bounds the sum of their sizes. 0 means no bound.
	MaxBytes int64
	// MaxDiskBytes bounds the size of the items on disk, including acknowledged items whose file has others. If it is
	// reached, Push waits. One item is written whatever its size is. 0 means no bound.
	MaxDiskBytes int64
	// Size returns an item's size in memory in bytes, which must not change while the item is queued. Nil means 0.
	Size func(T) int64
	// Encode appends the stored form of v to dst. It may run while the consumer has v. An item that cannot be encoded
	// is handled like one that cannot be written: it stays in memory, and so do all later items. Required.
	Encode func(dst []byte, v T) ([]byte, error)
	// Decode reads what Encode wrote. It may keep data. Required.
	Decode func(data []byte) (T, error)
	// Mark returns the source of an item and its position there. The items of a source must be pushed in the order of
	// their positions. The source is empty if the item has none. The queue keeps the last position of each source up
	// to which all items are acknowledged or on disk. Nil means no positions.
	Mark func(T) (source, position string)
	// OnSettled is called once for each item that the source need not send again after a crash, because it was
	// acknowledged or is on disk. The consumer still takes an item that is on disk. While the log has items, an
	// acknowledged item is settled only when its acknowledgement is durable: after a crash the items of the log come
	// again, and newer ones must follow them. Items that an earlier process pushed are not reported. OnSettled must
	// not keep the slice.
	OnSettled func(items []T)
	// Receipt returns a small value that represents an item for OnSettled, if the item has to be kept until its
	// acknowledgement is durable. Nil means the item itself.
	Receipt func(T) T
	// OnCorrupt is called when items could not be read back. The consumer takes the returned items in place of the lost
	// ones. They must not have a source (Mark). Nil means that lost items are skipped.
	OnCorrupt func(Loss) []T
	// HoldUp is how long pushes wait for the consumer when a quarter of the bounds is in use, before memory is filled
	// and the queue spills: to write items to disk and read them back costs more than everything else. If the queue
	// was not empty for twenty times HoldUp, pushes do not wait, so that a slow consumer does not delay the source
	// for long. 0 means that pushes never wait for this.
	HoldUp time.Duration
	// Since returns when an item was created. Nil means that items are not written because of their age.
	Since func(T) time.Time
	// MaxAge is how long an item may wait for its acknowledgement before the queue spills, even if memory is nearly
	// empty: a source may not keep its history for longer. 0 means DefaultMaxAge.
	MaxAge time.Duration
	// SyncInterval is the longest time between two commits while there is something to write. 0 means
	// DefaultSyncInterval.
	SyncInterval time.Duration
	Logger       *slog.Logger // nil: slog.Default()
}

// Loss is a run of items that could not be read back.
type Loss struct {
	First, Last uint64            // numbers of the items; 0 if the whole log is lost
	Positions   map[string]string // as of [Spill.Positions]; nil if the whole log is lost
	Err         error             // why the items could not be read
}

// Items returns how many items are lost; 0 if that is not known.
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
	seq  uint64 // items are numbered in their order, also across restarts while there are items on disk
}

// mark is a position of a source, and the number of the item that has it.
type mark struct {
	position string
	seq      uint64
}

// share is a part of the bounds.
type share struct {
	items int
	bytes int64 // 0 means no bound
}

// fits reports whether there is room for an item of this size in addition to this number of items and bytes.
func (s share) fits(items int, bytes, size int64) bool {
	return items < s.items && (s.bytes == 0 || size <= s.bytes-bytes)
}

// exceeded reports whether this number of items or bytes is more than the share.
func (s share) exceeded(items int, bytes int64) bool {
	return items > s.items || s.bytes > 0 && bytes > s.bytes
}

// Spill is a [Queue] that writes to disk what does not fit in memory; see the package comment.
//
// In order of age, the items that are not acknowledged are: those in head, of which the oldest are taken; those that
// are only on disk, with the numbers from headEnd+1 to diskEnd(); those in buf. The core's ledger counts head and buf.
type Spill[T any] struct {
	core[T]
	opts SpillOptions[T]
	log  *segment.Log
	// onFull, if set, is called by Run when a commit finds no room on disk or fails, and when a later one finds room.
	// Set once.
	onFull func(full bool)
	wake   chan struct{} // capacity 1: wakes Run before the interval ends
	// headShare bounds taken items and, while the queue spills, head; bufShare bounds buf. Their sum is the bounds of
	// the queue.
	headShare, bufShare share
	// commitBytes is the size of items in memory that one commit writes, and that starts a commit at once. batchBytes
	// is how much a commit writes to the file. Set once.
	commitBytes, batchBytes int64

	// core.mu guards everything below.

	// spilling is set while items are or will be on disk. If it is not set, buf is empty, no unacknowledged item is
	// on disk, and headEnd == tail.
	spilling bool
	head     deque[spilled[T]] // invariant: its first taken.len() items are the taken ones
	headEnd  uint64            // all items up to this number are in head, or acknowledged, or lost
	buf      deque[spilled[T]] // the newest items, with consecutive numbers up to tail; none is known to be on disk
	tail     uint64            // the newest item's number
	// durable: items up to this number are on disk or acknowledged. Valid while spilling. Invariant: no item between
	// headEnd and buf has a greater one.
	durable uint64

	// due is the number up to which items must be acknowledged or on disk before the queue may stop spilling.
	due uint64
	// receipts has the items that were acknowledged before they were on disk, and are not settled yet because the
	// acknowledgement is not durable. It is empty while the queue does not spill.
	receipts deque[spilled[T]]
	// released has the items that the last Ack settled. Its memory is reused by the consumer's goroutine.
	released []T

	busySince time.Time // when the queue was last empty
	heldSince time.Time // when pushes began to wait because of HoldUp; zero if isShallow

	takenBytes, bufBytes int64 // sizes of the taken items, and of the items in buf

	marks map[string]mark // by source, of items that were acknowledged and not written

	errs     int64
	lastErr  string    // empty: the last commit succeeded
	failing  bool      // it was logged that the disk fails, at failedAt
	failedAt time.Time // zero: never
}

var _ Queue[int] = (*Spill[int])(nil)

// segmentPart is the part of MaxDiskBytes that a segment may take. A segment takes its room until all its items are
// acknowledged.
const segmentPart = 16

// NewSpill returns a [Spill] that begins with the items on disk. Run closes its files. A log that cannot be used, or
// has an unknown format, is quarantined. NewSpill returns an error if the options are invalid or Path cannot be
// opened.
func NewSpill[T any](opts SpillOptions[T]) (*Spill[T], error) {
	switch {
	case opts.Path == "" || opts.Encode == nil || opts.Decode == nil:
		return nil, errors.New("fifo: Path, Encode and Decode are required")
	case opts.MaxItems < 2 || opts.MaxBytes < 0 || opts.MaxDiskBytes < 0:
		return nil, errors.New("fifo: MaxItems must be at least 2, MaxBytes and MaxDiskBytes at least 0")
	}
	if opts.SyncInterval <= 0 {
		opts.SyncInterval = DefaultSyncInterval
	}
	if opts.MaxAge <= 0 {
		opts.MaxAge = DefaultMaxAge
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
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
		opts: opts, log: log, wake: make(chan struct{}, 1),
		headShare:   share{items: opts.MaxItems - opts.MaxItems/2, bytes: opts.MaxBytes - opts.MaxBytes/2},
		bufShare:    share{items: opts.MaxItems / 2, bytes: opts.MaxBytes / 2},
		commitBytes: commitBytes, batchBytes: min(commitBytes, segmentBytes), spilling: last > acked,
		headEnd: acked, tail: last, durable: last, marks: map[string]mark{},
	}
	s.init(s, opts.MaxItems, opts.MaxBytes, opts.Size)
	if damage != nil {
		for _, v := range s.replacements(Loss{Err: damage}) { // the first items of the new queue
			size := s.sizeOf(v)
			s.add(size)
			s.tail++
			s.head.push(spilled[T]{v, size, s.tail})
		}
		s.headEnd = s.tail
	}
	return s, nil
}

// Positions returns, for each source, the last position up to which each item was acknowledged or is on disk. They
// are not valid if the queue was opened without items on disk. The caller may change the map.
func (s *Spill[T]) Positions() map[string]string { return s.log.Positions() }

// SpillStats returns the number of unacknowledged items on disk; the bytes that they take, with those of acknowledged
// items that are not removed yet; the bytes of all files; how many times writing or reading failed; and the last
// error, which is empty again after a success.
func (s *Spill[T]) SpillStats() (items, bytes, fileBytes, errors int64, lastErr string) {
	bytes = s.log.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if acked := s.ackedUpTo(); s.spilling && s.durable > acked {
		items = int64(s.durable - acked)
	}
	return items, bytes, bytes + segment.StateBytes, s.errs, s.lastErr
}

// PeekSpill counts the items on disk of a [Spill] that is not open, and changes nothing.
func PeekSpill(path string) (items int64, err error) { return segment.Peek(path) }

// Stats implements [Queue]. Items counts items in memory and on disk, Bytes the sizes of items in memory. Items from an
// earlier process are not in Pushed. Dropped counts items that could not be read back.
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

// ackedUpTo returns the number up to which all items were acknowledged or lost.
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
			s.accept(size)
			s.head.push(spilled[T]{v, size, s.tail})
			s.headEnd = s.tail
			return true
		}
		s.begin()
		s.kick()
	}
	if !s.lifted && !s.makeRoom(size) {
		if len(s.waiters) == 0 { // else it was done for the first waiter
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

// shallowPart is the part of the bounds from which on pushes wait because of HoldUp. A deep queue costs more than its
// own memory: the ledger keeps the states of all waiting items, and has everything written to disk if they are too
// many.
const shallowPart = 4

// isShallow reports whether so few items wait that a push need not wait.
func (s *Spill[T]) isShallow() bool {
	return s.items == 0 || s.items < s.maxItems/shallowPart && (s.maxBytes == 0 || s.bytes < s.maxBytes/shallowPart)
}

// holdUpPart is how many times HoldUp the queue may be not empty until pushes do not wait any more.
const holdUpPart = 20

// holdUp lets pushes wait for the consumer, and returns false when they have waited long enough.
func (s *Spill[T]) holdUp() bool {
	if s.opts.HoldUp <= 0 {
		return false
	}
	now := time.Now()
	if s.heldSince.IsZero() {
		s.heldSince = now
		s.kick() // Run offers the waiting items again when HoldUp is over
	}
	return now.Sub(s.heldSince) < s.opts.HoldUp && now.Sub(s.busySince) < holdUpPart*s.opts.HoldUp
}

// enqueue appends v to buf.
func (s *Spill[T]) enqueue(v T, size int64) {
	s.accept(size)
	s.buf.push(spilled[T]{v, size, s.tail})
	s.bufBytes += size
}

// begin makes the queue spill.
func (s *Spill[T]) begin() {
	if !s.spilling {
		s.spilling, s.durable, s.heldSince = true, s.ackedUpTo(), time.Time{}
	}
}

// Persist makes the queue write all items that it has now to disk, and returns at once. OnSettled is called when they
// are there. Items for which there is no room on disk stay in memory.
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

// accept counts and numbers an item that was pushed.
func (s *Spill[T]) accept(size int64) {
	s.add(size)
	s.pushed++
	s.tail++
}

// makeRoom reports whether buf has room for an item of this size. Head can have more than its share since the queue
// began to spill: makeRoom removes items from there that are on disk and not taken.
func (s *Spill[T]) makeRoom(size int64) bool {
	for s.headShare.exceeded(s.head.len(), s.headBytes()) && s.head.len() > s.taken.len() {
		seq := s.head.at(s.head.len() - 1).seq
		if seq > s.durable {
			return false
		}
		s.headEnd = seq - 1
		// Items that replace lost ones share a number.
		for s.head.len() > s.taken.len() && s.head.at(s.head.len()-1).seq == seq {
			s.remove(s.head.popBack().size)
		}
	}
	return s.buf.len() == 0 || s.bufShare.fits(s.buf.len(), s.bufBytes, size)
}

// pressing reports whether a commit should not wait for the end of the interval.
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

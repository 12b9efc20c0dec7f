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

// SpillOptions configures a [Spill]. Size, Mark, Since and Receipt are called with the queue locked, the others are
// not: Encode is called by the goroutine of Run, Decode by the consumer's, OnSettled by either, OnCorrupt by the
// consumer's and by NewSpill. None of them may call the queue.
type SpillOptions[T any] struct {
	// Path is the queue's directory. It is created when it is first needed, with mode 0700, in a directory that
	// exists. What is damaged in it is renamed to Path+".damaged-"+time. No other queue and no other process can use
	// it. Required.
	Path string
	// MaxItems bounds the items that are held in memory. Required, at least 2.
	MaxItems int
	// MaxBytes bounds the sum of their sizes. 0: no such bound.
	MaxBytes int64
	// MaxDiskBytes bounds what the items on disk take, with those that are acknowledged and in one file with others;
	// then Push waits. One item is written whatever its size. 0: no bound.
	MaxDiskBytes int64
	// Size is an item's size in memory in bytes; it must not change while the item is queued. Nil: every item has 0.
	Size func(T) int64
	// Encode appends what has to be stored of v to dst. It may run while the consumer has v. An item that can't be
	// encoded is handled as one that can't be written: it stays in memory, and so does what follows. Required.
	Encode func(dst []byte, v T) ([]byte, error)
	// Decode is Encode's opposite. It may keep data. Required.
	Decode func(data []byte) (T, error)
	// Mark names the place of an item in its source, in whose order the items of that source are pushed; source is
	// empty for items that have none. The store keeps the last position of each source that is durable:
	// acknowledged, or on disk. Nil: no positions.
	Mark func(T) (source, position string)
	// OnSettled is called once for each item that the source need not send again after a crash: it was acknowledged,
	// or is on disk. An item that is on disk is still given to the consumer. An item that was acknowledged is settled
	// when the file says so too, as long as the file has items: after a crash those come again, and what is newer has
	// to follow them. Items that an earlier process pushed are not reported. The slice must not be kept.
	OnSettled func(items []T)
	// Receipt makes a small value that OnSettled gets in the place of an item that was acknowledged before the file says
	// so. Nil: the item itself.
	Receipt func(T) T
	// OnCorrupt is called with the queue locked when items could not be read back. The consumer gets the items that
	// it returns in the place of those that are lost; they may have no place in a source (Mark). Nil: lost items are
	// skipped.
	OnCorrupt func(Loss) []T
	// HoldUp is for how long a push waits for the consumer when a quarter of the bounds is in use, before memory is
	// filled and the queue spills: what is written to disk has to be read back, which costs more than all else. After twenty times HoldUp in which the
	// queue was never empty it spills at once, so that a slow consumer does not hold up the source for long. 0: it
	// always spills at once.
	HoldUp time.Duration
	// Since gives when an item came to be. Nil: items are not written because of their age.
	Since func(T) time.Time
	// MaxAge is how long an item waits for its acknowledgement before the queue spills, however little waits: a source may
	// not keep its history for longer. 0: DefaultMaxAge.
	MaxAge time.Duration
	// SyncInterval is the longest time between two commits while there is something to write. 0: DefaultSyncInterval.
	SyncInterval time.Duration
	Logger       *slog.Logger // nil: slog.Default()
}

// Loss is a run of items that could not be read back.
type Loss struct {
	First, Last uint64 // numbers of the items, which grow over restarts; 0 if the whole file is lost and nobody knows
	// Positions are those of [Spill.Positions]; nil if everything is lost.
	Positions map[string]string
	Err       error // why it could not be read
}

// Items is how many items are lost; 0 if nobody knows.
func (l Loss) Items() int {
	if l.Last == 0 {
		return 0
	}
	return int(l.Last - l.First + 1)
}

// spilled is an item that is held in memory.
type spilled[T any] struct {
	v    T
	size int64
	seq  uint64 // items are numbered in their order, from 1, over restarts as long as something lies on disk
}

// mark is a position of a source, and the number of the item that it is from.
type mark struct {
	position string
	seq      uint64
}

// share is a part of the bounds.
type share struct {
	items int
	bytes int64 // 0: no bound
}

// fits reports whether an item of this size has room beside so many items with so many bytes.
func (s share) fits(items int, bytes, size int64) bool {
	return items < s.items && (s.bytes == 0 || size <= s.bytes-bytes)
}

// exceeded reports whether these are more than the share.
func (s share) exceeded(items int, bytes int64) bool {
	return items > s.items || s.bytes > 0 && bytes > s.bytes
}

// Spill is a [Queue] that writes to disk what does not fit in memory. The package comment says how.
//
// In order of age, the items that are not acknowledged are: those in head, of which the oldest are taken; those that
// lie only on disk, with the numbers from headEnd+1 to diskEnd(); those in buf. The core's ledger counts head and buf.
type Spill[T any] struct {
	core[T]
	opts SpillOptions[T]
	log  *segment.Log
	// onFull, if set, is called by Run when a commit found no room on disk or failed, and when one found room again.
	// Set once.
	onFull func(full bool)
	wake   chan struct{} // capacity 1: Run has something to do that does not wait for the next interval
	// headShare bounds what is taken, and head while the queue spills; bufShare bounds buf. Together they are the
	// bounds of the whole.
	headShare, bufShare share
	// commitBytes is how much of the items in memory one commit writes, and how much starts one at once; batchBytes is how
	// much it writes to the file. Set once.
	commitBytes, batchBytes int64

	// All that follows is guarded by core.mu.

	// spilling says that items go to disk: something lies there, or will. If not, buf is empty, no unacknowledged item is
	// on disk, and headEnd == tail.
	spilling bool
	head     deque[spilled[T]] // invariant: its first taken.len() items are the taken ones
	headEnd  uint64            // all items up to this number are in head, or acknowledged, or lost
	buf      deque[spilled[T]] // the newest items, with consecutive numbers up to tail; none is known to be on disk
	tail     uint64            // the newest item's number
	// durable: items up to this number are on disk or acknowledged. Valid while spilling. Invariant: no item between
	// headEnd and buf has a greater one.
	durable uint64

	// due: items up to this number have to be acknowledged or on disk before the queue stops to spill.
	due uint64
	// receipts are of items that were acknowledged before they were on disk, and are not settled: the file does not say
	// so. Empty while the queue does not spill.
	receipts deque[spilled[T]]
	// released is memory of the consumer: what its last Ack settled.
	released []T

	busySince time.Time // when the queue was empty the last time
	heldSince time.Time // since when pushes are held up, or were held up without success; zero: little waits

	takenBytes, bufBytes int64 // sums of the sizes of what is taken, and of what is in buf

	marks map[string]mark // of items that were acknowledged and not written, if the log does not have them

	errs     int64
	lastErr  string    // empty: the last commit succeeded
	failing  bool      // it was logged that the disk fails, at failedAt
	failedAt time.Time // zero: never
}

var _ Queue[int] = (*Spill[int])(nil)

// segmentPart is the part of MaxDiskBytes that a segment may take. As long as an item of a segment is not
// acknowledged, none of it makes room.
const segmentPart = 16

// NewSpill makes a [Spill], which begins with what is on disk. What can't be used of that, or is of an unknown
// format, is renamed. An error is about the options, or says that Path can't be opened, which Run closes.
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

// Positions are, for each source, the last position that is durable: every item of that source up to it was
// acknowledged or is on disk. They say nothing when a queue is opened that has nothing on disk. The map is the
// caller's.
func (s *Spill[T]) Positions() map[string]string { return s.log.Positions() }

// SpillStats says what is on disk: unacknowledged items, what they take there, with what was acknowledged and not
// removed yet, and what all files take, in bytes; how many times writing or opening failed since the start, and why
// it did the last time, which is empty again when it succeeded.
func (s *Spill[T]) SpillStats() (items, bytes, fileBytes, errors int64, lastErr string) {
	bytes = s.log.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if acked := s.ackedUpTo(); s.spilling && s.durable > acked {
		items = int64(s.durable - acked)
	}
	return items, bytes, bytes + segment.StateBytes, s.errs, s.lastErr
}

// PeekSpill counts the items of a [Spill] that is not open, and changes nothing. There are none if there is nothing
// on disk.
func PeekSpill(path string) (items int64, err error) { return segment.Peek(path) }

// Stats implements [Queue]. Items counts what is in memory and on disk, Bytes what is in memory. Items from an
// earlier run are not in Pushed. Dropped counts items that could not be read back.
func (s *Spill[T]) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Items: s.items + int(s.diskEnd()-s.headEnd), Bytes: s.bytes, Taken: s.taken.len(),
		Pushed: s.pushed, Acked: s.acked, Dropped: s.dropped, Blocked: s.blocked,
	}
}

// diskEnd is the number of the newest item that is not in buf.
func (s *Spill[T]) diskEnd() uint64 {
	if s.buf.len() == 0 {
		return s.tail
	}
	return s.buf.front().seq - 1
}

// ackedUpTo is the number up to which all items were acknowledged (or lost).
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
	if !s.lifted && !s.room(size) {
		if len(s.waiters) == 0 { // else the first of those who wait said so
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

// shallowPart is the part of the bounds from which on pushes are held up. A deep queue costs more than its own memory:
// the ledger keeps the states of all that waits, and has everything written to disk when these are too many.
const shallowPart = 4

// isShallow reports whether so little waits that a push need not.
func (s *Spill[T]) isShallow() bool {
	return s.items == 0 || s.items < s.maxItems/shallowPart && (s.maxBytes == 0 || s.bytes < s.maxBytes/shallowPart)
}

// holdUpPart is the part of the time that the queue was never empty which HoldUp is at least.
const holdUpPart = 20

// holdUp begins to hold up pushes, if it has not yet, and reports whether they still have to wait for the consumer.
func (s *Spill[T]) holdUp() bool {
	if s.opts.HoldUp <= 0 {
		return false
	}
	now := time.Now()
	if s.heldSince.IsZero() {
		s.heldSince = now
		s.kick() // Run offers again what waits when HoldUp is over
	}
	return now.Sub(s.heldSince) < s.opts.HoldUp && now.Sub(s.busySince) < holdUpPart*s.opts.HoldUp
}

// enqueue takes v up in buf.
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

// Persist makes the queue write everything that waits now to disk, and returns at once; OnSettled says when it is
// there. What finds no room on disk stays in memory.
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

// accept counts an item that is taken up, and numbers it.
func (s *Spill[T]) accept(size int64) {
	s.add(size)
	s.pushed++
	s.tail++
}

// room reports whether an item of this size may go to buf. When the queue began to spill, head may hold more than its
// share: what is on disk and not taken is then let go of.
func (s *Spill[T]) room(size int64) bool {
	for s.headShare.exceeded(s.head.len(), s.headBytes()) && s.head.len() > s.taken.len() {
		newest := s.head.at(s.head.len() - 1)
		if newest.seq > s.durable {
			return false
		}
		s.headEnd = newest.seq - 1
		for s.head.len() > s.taken.len() && s.head.at(s.head.len()-1).seq == newest.seq { // replacements of a run share a number
			s.remove(s.head.at(s.head.len() - 1).size)
			s.head.popBack()
		}
	}
	return s.buf.len() == 0 || s.bufShare.fits(s.buf.len(), s.bufBytes, size)
}

// pressing reports whether what is to be written should not wait for the end of the interval.
func (s *Spill[T]) pressing() bool {
	return len(s.waiters) > 0 || s.bufBytes >= s.commitBytes || s.bufBytes > s.bufShare.bytes/2 && s.bufShare.bytes > 0 ||
		s.buf.len() > s.bufShare.items/2
}

// kick makes Run look at once.
func (s *Spill[T]) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

package fifo

import (
	"errors"
	"log/slog"
	"sync"
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

// ErrClosed is returned by Push if the queue is closed, and by Take if the queue is closed and empty.
var ErrClosed = errors.New("fifo: queue is closed")

// Options configures a [Queue]. All fields without a documented default are required, except for those of the overflow
// policies. The functions must be fast and must not call the queue. Encode is called by Run, Decode by the consumer's
// goroutine, and Mark and OnSettled by both. Gap, Merge, Key, OnMerge, Since, Receipt and OnCorrupt are called with the
// queue locked. Mark and Size may be called with or without the lock.
type Options[T any] struct {
	// Path is the queue's directory. It is created when the queue first spills, with mode 0700, in a directory that must
	// exist. Damaged files are renamed to Path+".damaged-"+time. Only one queue can use a directory at a time. Path is not
	// used if Log is set.
	Path string
	// Log, if it is not nil, is the log to which the queue spills. Run closes it.
	Log Log
	// MaxItems bounds the number of items in memory. It must be at least 2.
	MaxItems int
	// MaxBytes bounds the total size of the items in memory. 0 means no bound.
	MaxBytes int64
	// MaxDiskBytes bounds the size of the items on disk. Acknowledged items count while their file contains unacknowledged
	// items. If the bound is reached, the overflow policy applies when memory is full. If no items are on disk, one item
	// is written even if it is larger than the bound. The bound does not apply at the end of Run. 0 means no bound.
	MaxDiskBytes int64
	// Size returns an item's size in memory in bytes, which must not change while the item is queued.
	Size func(T) int64
	// Encode appends the stored form of v to dst. It may run while the consumer uses v. If Encode fails, the item is
	// handled as if it could not be written: the item and all later items stay in memory.
	Encode func(dst []byte, v T) ([]byte, error)
	// Decode returns the item that Encode encoded as data. It may keep data. left reports whether an earlier process has
	// left the item on disk, or whether it was pushed before the last call of Restore.
	Decode func(data []byte, left bool) (T, error)
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
	// lost items. The returned items must not have a source (Mark). Until they are acknowledged, another process
	// finds the same loss, unless the whole log is lost: then New calls OnCorrupt before it quarantines the log.
	OnCorrupt func(Loss) []T
	// HoldUp is the maximum time that pushes wait for the consumer when a quarter of the bounds is in use. Waiting can
	// avoid spilling, which is expensive: writing items to disk and reading them back costs more than all other work.
	// After HoldUp, pushes are accepted until memory is full, and then the queue spills at once. If the queue is not empty
	// for 20 times HoldUp, HoldUp has no effect until the queue is empty again, so a slow consumer delays the source only
	// for a short time. 0 means that pushes do not wait before the queue spills.
	HoldUp time.Duration
	// Since returns the time when an item was created. An item that is older than ten seconds makes the queue spill.
	Since  func(T) time.Time
	Logger *slog.Logger

	// Gap selects the policy that drops the oldest items. It returns the gap item that replaces a dropped item. If gap is
	// not the zero value, gap is a waiting gap item, and Gap returns a gap item that replaces both, or false if there is
	// no such item. Gap must not change its arguments. The bounds do not apply to gap items, so there should be few, for
	// example one per resource. The queue uses every item that Gap returns, so dropped counts as dropped. Items are
	// dropped in queue order.
	Gap func(gap, dropped T) (T, bool)

	// Merge selects the policy that merges items of the same key. It returns the item that replaces both arguments. The
	// result takes the place of newer and must have its key. It should not be larger than both arguments together. Merge
	// must not change its arguments. The queue may ignore the result and call Merge again later.
	Merge func(older, newer T) T
	// Key returns a value, such as an object's uid, that is the same for all items that may be merged with each other. It
	// returns an empty string for an item that must not be merged. The value must not change. Required if Merge is set.
	Key func(T) string
	// OnMerge is called with every item that was merged into a newer item. Required if Merge is set.
	OnMerge func(older T)
}

// Log is a log of spilled items on disk. It has the contract of [segment.Log], which implements it: if Append returns
// nil, the records and their positions are durable, and if Ack returns nil, the acknowledgement is durable. Ack must be
// repeated after an error, before the next Append. After a crash, the log contains a prefix of the appended records,
// and the positions of exactly this prefix. A damaged record is lost without others, and Read returns it as a record
// with an error. After Close, Read returns [segment.ErrClosed].
//
// At any time, one goroutine may call NewBatch, Append, Ack and Close, another one Read, and any goroutine the other
// methods.
type Log interface {
	NewBatch() *segment.Batch
	Append(b *segment.Batch, positions map[string]string) error
	Ack(upTo uint64) error
	Read(number uint64) (segment.Record, error)
	Acked() uint64
	Last() uint64
	Positions() map[string]string
	Size() int64
	Close() error
}

// Stats is a snapshot of a queue's numbers. The values from Pushed to Blocked are counters, which only grow. Except for
// Acked and Dropped, they do not include items from an earlier process.
type Stats struct {
	Items   int   // items in memory and on disk that are not acknowledged
	Bytes   int64 // total size of the items in memory, without gap items
	Taken   int   // items that are taken but not acknowledged
	Pushed  int64 // items that Push accepted
	Acked   int64 // items that were acknowledged
	Dropped int64 // items that the policy dropped, or that could not be read back
	Merged  int64 // items that were merged into a newer item
	Blocked int64 // pushes that had to wait
}

// Loss describes consecutive items that could not be read back.
type Loss struct {
	First, Last uint64            // numbers of the items; 0 if the whole log is lost
	Positions   map[string]string // see [Queue.Positions]; nil if the whole log is lost
	Unnamed     bool              // whether Positions may not contain the sources of the lost items
	Err         error             // why the items could not be read
}

// Items returns the number of lost items, or 0 if the number is not known.
func (l Loss) Items() int {
	if l.Last == 0 {
		return 0
	}
	return int(l.Last - l.First + 1)
}

// numbered is an item and its number. Items are numbered in queue order; restarts continue the numbers while items are
// on disk.
type numbered[T any] struct {
	v   T
	seq uint64
}

// mark is a position of a source, and the number of the item with that position.
type mark struct {
	position string
	seq      uint64
}

// share is a portion of the queue's bounds.
type share struct {
	items int
	bytes int64 // 0 means no bound
}

// fits reports whether the share has room for an item of this size when it already has this number of items and bytes.
func (s share) fits(items int, bytes, size int64) bool {
	return items < s.items && (s.bytes == 0 || size <= s.bytes-bytes)
}

// Queue is a bounded queue between one or more producers and one consumer; see the package comment. All methods are
// safe for concurrent use, except that only the consumer may call Take and Ack, and that Run must be called exactly
// once.
//
// Every unacknowledged item is in one of four places. From the oldest to the newest, these are: taken; ready; only on
// disk, with the numbers headEnd+1 to diskEnd; and buf. Items are pushed to buf. The items in taken and ready are
// called the head.
type Queue[T any] struct {
	opts Options[T]
	log  Log
	work chan struct{} // capacity 1: wakes the consumer
	wake chan struct{} // capacity 1: wakes Run before the interval ends
	// headShare bounds the head. bufShare bounds buf while items are only on disk. Together, they are the bounds of the
	// queue.
	headShare, bufShare share
	// commitBytes is the maximum total size (in memory) of the items that one commit writes. If items of this size wait, a
	// commit starts at once. batchBytes is the maximum number of encoded bytes that a commit writes.
	commitBytes, batchBytes int64
	syncInterval, maxAge    time.Duration // the constants of these names, except in tests

	mu sync.Mutex // guards the following fields; held only for short, non-blocking work
	// waiters contains the pushes that wait, oldest first. Invariant: the first waiter was offered after the last change
	// that could have made room, and was not accepted.
	waiters []*waiter[T]
	closed  bool  // invariant: if closed is true, there are no waiters
	lifted  bool  // the bounds were removed
	stats   Stats // only the counters

	taken list[T] // the taken items
	ready list[T] // items that wait to be taken and were on disk, or replace lost items
	// buf contains the newest items, with consecutive numbers after diskEnd. None is known to be on disk.
	buf     list[T]
	headEnd uint64 // all items up to this number are in the head, acknowledged or lost
	diskEnd uint64 // all items up to this number are in the head, on disk, acknowledged or lost
	left    uint64 // items up to this number are left from before: see Options.Decode

	// spilling is true while items are on disk or are about to be written. If it is false, no unacknowledged item is on
	// disk.
	spilling bool
	// full is true if the last commit failed or found no room on disk. Then the overflow policy applies to buf, except for
	// its oldest item, and a commit writes only one item. Therefore the policy never changes an item that is being
	// written.
	full bool
	// durable is the number up to which all items are on disk or acknowledged. It is valid only while the queue spills.
	// Invariant: no item that is only on disk has a greater number.
	durable uint64

	// due is the number up to which all items must be acknowledged or on disk before the queue may stop spilling.
	due uint64
	// receipts contains the items that were acknowledged before they were on disk and are not settled yet because their
	// acknowledgements are not durable. It is empty while the queue does not spill.
	receipts []numbered[T]
	// released contains the items that the last Ack settled. The consumer's goroutine reuses its memory.
	released []T

	busySince time.Time // when the queue was last empty
	// heldSince is when pushes began to wait because of HoldUp. It is zero while less than a quarter of the
	// bounds is used.
	heldSince time.Time

	marks map[string]mark // by source: marks of items that were acknowledged but not written

	// latest contains the newest item in buf of every key, without buf's oldest item. Invariant: the older links, followed
	// from this item, lead to all other such items of the key. latest is nil unless items were merged since the disk
	// became full.
	latest map[string]*node[T]
	// search is the item in buf at which the search for items to merge continues. Invariant: no item before search has an
	// older link. If search is the end of buf, the search continues at the next item that is pushed.
	search *node[T]

	blockedFrom time.Time // when pushes began to wait, one after another, because the queue is full
	blockedAt   time.Time // when a push was last seen to wait for this reason

	errs     int64
	lastErr  string    // empty if the last commit succeeded
	failing  bool      // a disk failure was logged at failedAt
	failedAt time.Time // zero if no failure was logged yet
}

// segmentPart limits the size of a segment to 1/segmentPart of MaxDiskBytes. A segment uses disk space until all its
// items are acknowledged.
const segmentPart = 16

// New returns a queue that starts with the items on disk. Run closes the log. If the log in Path cannot be used or has
// an unknown format, it is quarantined. New returns an error if Path cannot be opened. It panics if the bounds are
// invalid.
func New[T any](opts Options[T]) (*Queue[T], error) {
	if opts.MaxItems < 2 || opts.MaxBytes < 0 {
		panic("fifo: MaxItems must be at least 2 and MaxBytes at least 0")
	}
	q := &Queue[T]{
		opts:         opts,
		log:          opts.Log,
		work:         make(chan struct{}, 1),
		wake:         make(chan struct{}, 1),
		headShare:    share{items: opts.MaxItems - opts.MaxItems/2, bytes: opts.MaxBytes - opts.MaxBytes/2},
		bufShare:     share{items: opts.MaxItems / 2, bytes: opts.MaxBytes / 2},
		commitBytes:  commitBytes,
		batchBytes:   logBytes,
		syncInterval: syncInterval,
		maxAge:       maxAge,
		marks:        map[string]mark{},
	}
	for _, l := range []*list[T]{&q.taken, &q.ready, &q.buf} {
		l.init()
	}
	var lost []T
	if q.log == nil {
		if err := q.openPath(func(damage error) { lost = opts.OnCorrupt(Loss{Err: damage}) }); err != nil {
			return nil, err
		}
	}
	q.headEnd, q.diskEnd, q.left = q.log.Acked(), q.log.Last(), q.log.Last()
	q.spilling, q.durable = q.diskEnd > q.headEnd, q.diskEnd
	for _, v := range lost { // they are the first items of the new queue
		q.enqueue(v, q.sizeOf(v))
	}
	return q, nil
}

// openPath opens the log in Path.
func (q *Queue[T]) openPath(onDamage func(error)) error {
	o := &q.opts
	segmentBytes := int64(segment.DefaultBytes)
	if o.MaxDiskBytes > 0 {
		segmentBytes = min(segmentBytes, max(1, o.MaxDiskBytes/segmentPart))
	}
	log, err := segment.Open(o.Path, segmentBytes, o.Logger, onDamage)
	if err != nil {
		return err
	}
	q.log, q.batchBytes = log, min(commitBytes, segmentBytes)
	o.Logger = o.Logger.With("path", o.Path)
	return nil
}

// Positions returns, for each source, the last position up to which all items are acknowledged or on disk. The
// positions are not valid if the queue was opened without items on disk. The caller may change the map.
func (q *Queue[T]) Positions() map[string]string { return q.log.Positions() }

// SpillStats describes what a queue has on disk.
type SpillStats struct {
	Items     int64  // items that are not acknowledged
	Bytes     int64  // size of the items, including acknowledged ones that are not removed yet
	FileBytes int64  // size of the files in Options.Path
	Errors    int64  // failed reads and writes
	LastErr   string // the last error; empty after a success
}

// SpillStats returns what is on disk.
func (q *Queue[T]) SpillStats() SpillStats {
	s := SpillStats{Bytes: q.log.Size()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if acked := q.ackedUpTo(); q.spilling && q.durable > acked {
		s.Items = int64(q.durable - acked)
	}
	if q.opts.Log == nil {
		s.FileBytes = s.Bytes + segment.StateBytes
	}
	s.Errors, s.LastErr = q.errs, q.lastErr
	return s
}

// Peek returns the number of items on disk of a queue that is not open. It does not change any file.
func Peek(path string) (items int64, err error) { return segment.Peek(path) }

// Stats returns a consistent snapshot.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Items = q.taken.len() + q.ready.len() + int(q.diskEnd-q.headEnd) + q.buf.len()
	s.Taken = q.taken.len()
	_, s.Bytes = q.inMemory()
	return s
}

// tail returns the number of the newest item.
func (q *Queue[T]) tail() uint64 { return q.diskEnd + uint64(q.buf.len()) }

// ackedUpTo returns the number up to which all items are acknowledged or lost.
func (q *Queue[T]) ackedUpTo() uint64 {
	for _, l := range []*list[T]{&q.taken, &q.ready} {
		if n := l.oldest(); n != nil {
			return n.seq - 1
		}
	}
	return q.headEnd
}

// Last returns the number of the newest item. While the overflow policy drops or merges items, it can decrease.
func (q *Queue[T]) Last() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tail()
}

// Taken returns the number of the last item that Take returned, or 0 if there is none. The consumer calls it.
func (q *Queue[T]) Taken() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.ready.oldest(); n != nil {
		return n.seq - 1
	}
	return q.headEnd
}

// IsSettled reports whether all items up to this number are acknowledged or on disk. If the overflow policy has dropped
// or merged items, so that no item has this number, these are all items.
func (q *Queue[T]) IsSettled(number uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	number = min(number, q.tail())
	return q.ackedUpTo() >= number || q.spilling && q.durable >= number
}

// Gone reports whether the queue returns none of the items up to this number again, even after a crash: all of them are
// acknowledged, and the acknowledgements of items that were on disk are durable.
func (q *Queue[T]) Gone(number uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ackedUpTo() >= number && (!q.spilling || q.log.Acked() >= number)
}

// inMemory returns the number and the total size of the items in memory, without gap items.
func (q *Queue[T]) inMemory() (items int, bytes int64) {
	items, bytes = q.head()
	return items + q.buf.items, bytes + q.buf.bytes
}

// head returns the number and the total size of the items in the head, without gap items.
func (q *Queue[T]) head() (items int, bytes int64) {
	return q.taken.items + q.ready.items, q.taken.bytes + q.ready.bytes
}

// sizeOf returns the size of v. It is never negative.
func (q *Queue[T]) sizeOf(v T) int64 { return max(0, q.opts.Size(v)) }

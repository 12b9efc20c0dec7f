package fifo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/internal/pause"
	"github.com/deltabridge/deltabridge/internal/segment"
)

const (
	// commitBytes is the maximum that one commit writes, both as the items' size in memory and as encoded bytes. A single
	// item may be larger.
	commitBytes = 4 << 20
	// logBytes is the maximum number of encoded bytes that a commit writes to Options.Log. It is smaller, because other
	// writes to such a log may wait meanwhile. A single item may be larger.
	logBytes = 1 << 20
	// A failed commit is retried after retryMin. The delay doubles with every failure, up to retryMax.
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
	// failureLog is the minimum time between two log messages about a new failure, because a full disk can have room again
	// and fill up repeatedly.
	failureLog = time.Minute
)

// Run commits until ctx ends. Then it closes the queue, writes all unacknowledged items to disk, even if the queue does
// not spill or MaxDiskBytes is reached, and closes the files. If it returns an error, some items could not be written
// and are not durable.
func (q *Queue[T]) Run(ctx context.Context) error {
	defer q.log.Close() // all records are durable already
	c := &committer[T]{Queue: q}
	retry := retryMin
	for c.wait(ctx) {
		for again := true; again && ctx.Err() == nil; {
			progress, err := c.round(false)
			c.setFull(err != nil || c.cut)
			if err == nil {
				again = progress && (c.more || q.pressed())
				retry = retryMin
				continue
			}
			q.failed(err)
			pause.For(ctx, retry)
			retry = min(2*retry, retryMax)
		}
	}
	q.Close()
	return c.last()
}

// committer is the state of Run's goroutine.
type committer[T any] struct {
	*Queue[T]
	entries []numbered[T]  // items that the current commit writes
	batch   *segment.Batch // reused while the queue spills
	cut     bool           // the last commit found no room on disk
	more    bool           // the last commit did not write everything
}

// wait waits until a commit may be necessary. It returns false if ctx has ended.
func (c *committer[T]) wait(ctx context.Context) bool {
	t := time.NewTimer(c.interval())
	defer t.Stop()
	select {
	case <-c.wake:
	case <-t.C:
	case <-ctx.Done():
	}
	c.review()
	return ctx.Err() == nil
}

// interval returns the time until the next review or commit, unless Run is woken earlier.
func (c *committer[T]) interval() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spilling {
		return c.syncInterval
	}
	c.batch, c.entries = nil, nil
	if !c.heldSince.IsZero() {
		return c.opts.HoldUp
	}
	return max(time.Millisecond, c.maxAge-c.age())
}

// Age returns the time since the oldest unacknowledged item (Options.Since), or 0 if there is none. Items that an
// earlier process left on disk, and the items on disk after them, do not count before the first Take.
func (q *Queue[T]) Age() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.age()
}

func (q *Queue[T]) age() time.Duration {
	for _, l := range []*list[T]{&q.taken, &q.ready, &q.buf} {
		if n := l.oldest(); n != nil {
			return time.Since(q.opts.Since(n.v))
		}
	}
	return 0
}

// review offers the waiting pushes again, because HoldUp may be over, and makes the queue spill if an item is older
// than maxAge.
func (q *Queue[T]) review() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spilling {
		return
	}
	q.admit()
	if q.age() >= q.maxAge {
		q.persist()
	}
}

// last writes all current items.
func (c *committer[T]) last() error {
	if mutant.On("no-spill-at-end") {
		return nil
	}
	c.mu.Lock()
	end := c.tail()
	c.persist()
	c.mu.Unlock()
	for {
		progress, err := c.round(true)
		if err != nil {
			c.failed(err)
			return fmt.Errorf("cannot write the queue to disk at shutdown: %w", err)
		}
		c.mu.Lock()
		done := max(c.durable, c.ackedUpTo())
		isDone := !c.spilling || done >= end
		c.mu.Unlock()
		if isDone {
			return nil
		}
		if !progress {
			return fmt.Errorf("cannot write the last %d items of the queue to disk", end-done)
		}
	}
}

// pressed reports whether the next commit should follow at once.
func (q *Queue[T]) pressed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.spilling && q.pressing()
}

// failed counts and logs a disk failure.
func (q *Queue[T]) failed(err error) {
	q.mu.Lock()
	q.errs++
	isNews := !q.failing && time.Since(q.failedAt) >= failureLog
	if isNews {
		q.failing, q.failedAt = true, time.Now()
	}
	q.lastErr = err.Error()
	q.mu.Unlock()
	if isNews {
		q.opts.Logger.Error("cannot write or read the spill, retrying", "err", err)
	}
}

// recovered resets the error after a success, and logs the recovery if the failure was logged.
func (q *Queue[T]) recovered() {
	q.mu.Lock()
	worked := q.failing
	q.failing, q.lastErr = false, ""
	q.mu.Unlock()
	if worked {
		q.opts.Logger.Info("spill works again")
	}
}

// plan describes one commit. The items to write are in committer.entries.
type plan struct {
	acked uint64            // all items up to this number are acknowledged
	known uint64            // all items up to this number are on disk or acknowledged
	leave bool              // the queue can stop spilling: no item is only on disk
	marks map[string]string // by source: positions of items that were acknowledged but not written
}

// plan returns the plan for the next commit. ok is false if no commit is necessary.
func (c *committer[T]) plan(final bool) (p plan, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.entries, c.more, c.cut = c.entries[:0], false, false
	if !c.spilling {
		return p, false
	}
	p = plan{acked: c.ackedUpTo(), marks: map[string]string{}}
	p.known = max(c.durable, p.acked)
	p.leave = c.log.Last() <= p.acked && (p.known >= c.tail() || !final && c.calm())
	if !p.leave {
		c.collect(p.known, final)
	}
	for source, m := range c.marks {
		p.marks[source] = m.position
	}
	return p, p.leave || len(c.entries) > 0 || p.acked > c.log.Acked()
}

// calm reports whether no push waits, all items fit in half of the bounds, and all items that Persist has to write are
// written.
func (q *Queue[T]) calm() bool {
	items, bytes := q.inMemory()
	due := min(q.due, q.tail()) // the policy may have reduced the number of items
	return len(q.waiters) == 0 && q.headShare.fits(items-1, bytes, 0) && due <= max(q.durable, q.ackedUpTo())
}

// collect sets c.entries to the next items to write, beginning with the number known+1. If the disk was full, c.entries
// gets only one item, and the policy applies to the others.
func (c *committer[T]) collect(known uint64, final bool) {
	var bytes int64
	add := func(n *node[T], seq uint64) bool {
		if len(c.entries) > 0 && (bytes >= c.commitBytes || c.full && !final) {
			c.more = true
			return false
		}
		c.entries = append(c.entries, numbered[T]{n.v, seq})
		bytes += n.size
		return true
	}
	for n := range c.taken.all() {
		if n.seq > known && !add(n, n.seq) {
			return
		}
	}
	seq := c.diskEnd
	for n := range c.buf.all() {
		seq++
		if !add(n, seq) {
			return
		}
	}
}

// setFull records whether the disk has room and can be written. From then on, the policy applies, or no longer applies,
// to all pushes, including those that wait.
func (c *committer[T]) setFull(full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full = full; !full {
		c.latest, c.search = nil, nil
	}
	c.admit()
}

// round commits once and reports whether it wrote items or the queue stopped spilling. It makes acknowledgements
// durable first, because that makes room on a full disk. If an item cannot be encoded, round writes the items before it
// and returns an error.
func (c *committer[T]) round(final bool) (progress bool, err error) {
	p, ok := c.plan(final)
	if !ok {
		return false, nil
	}
	if err := c.log.Ack(p.acked); err != nil {
		return false, err
	}
	last := p.known
	if len(c.entries) > 0 {
		last, err = c.write(p, final)
	}
	if err == nil {
		c.recovered()
	}
	settled := c.finish(p, last, final)
	clear(c.entries)
	c.report(settled)
	return p.leave || last > p.known, err
}

// write writes as many of c.entries as there is room for. It returns the number up to which all items are on disk or
// acknowledged.
func (c *committer[T]) write(p plan, final bool) (last uint64, err error) {
	err = c.encode(final)
	if c.batch.Last() == 0 {
		return p.known, err
	}
	if writeErr := c.log.Append(c.batch, p.marks); writeErr != nil {
		return p.known, errors.Join(err, writeErr)
	}
	return c.batch.Last(), err
}

// encode adds as many of c.entries to the batch as there is room for. If an item cannot be encoded, the batch contains
// the items before it.
func (c *committer[T]) encode(final bool) error {
	if c.batch == nil {
		c.batch = c.log.NewBatch()
	}
	c.batch.Reset()
	onDisk := c.log.Size()
	for i, e := range c.entries {
		room := int64(math.MaxInt64)
		if c.opts.MaxDiskBytes > 0 && !final && (onDisk > 0 || i > 0) {
			room = c.opts.MaxDiskBytes - onDisk
		}
		source, position := c.opts.Mark(e.v)
		added, err := c.batch.Add(e.seq, source, position, room, func(dst []byte) ([]byte, error) {
			return c.opts.Encode(dst, e.v)
		})
		if err != nil {
			return fmt.Errorf("encode an item: %w", err)
		}
		if !added {
			c.cut = true
			return nil
		}
		if c.batch.Bytes() >= c.batchBytes {
			c.more = c.more || i < len(c.entries)-1
			return nil
		}
	}
	return nil
}

// finish records that all items up to the number last are on disk or acknowledged, and stops spilling if p and the
// items that were pushed since then permit it. It returns the items that became settled.
func (c *committer[T]) finish(p plan, last uint64, final bool) (settled []T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durable = last
	leave := p.leave && (final || c.calm())
	if last > p.known {
		maps.DeleteFunc(c.marks, func(_ string, m mark) bool { return m.seq <= last })
	}
	n := 0
	for ; n < len(c.receipts) && (leave || c.receipts[n].seq <= last); n++ {
		settled = append(settled, c.receipts[n].v)
	}
	if c.receipts = slices.Delete(c.receipts, 0, n); leave {
		c.receipts = nil
	}
	acked := c.ackedUpTo()
	for _, e := range c.entries {
		if e.seq > acked && e.seq <= last {
			settled = append(settled, e.v)
		}
	}
	for c.diskEnd < last { // keep the item in memory only if Take can return it next
		isNext := c.headEnd == c.diskEnd
		if n := c.shift(); isNext && (final || c.headHasRoom(n.size)) {
			c.ready.push(n)
			c.headEnd = n.seq
		}
	}
	c.spilling, c.full = !leave, c.cut
	return settled
}

package fifo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
)

const (
	// commitBytes is how much one commit writes at most, in sizes of items and in encoded bytes, unless one item is larger.
	commitBytes = 4 << 20
	// maxFreed is how many acknowledged blocks one commit deletes at most, unless they are all. It bounds how much of the
	// file a commit has to look at, and so to map.
	maxFreed = 128
	// shrinkAbove is the size above which the file is replaced by an empty one when nothing lies in it any more.
	shrinkAbove = 16 << 20
	// After a failed commit the next one waits for retryMin, then twice as long each time, up to retryMax.
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
	// failureLog is the shortest time between two messages that the file began to fail: a full disk comes and goes.
	failureLog = time.Minute
)

// Run commits what is to be written until ctx ends. Then it writes everything that is not acknowledged, whether the queue
// spills or not and whatever MaxDiskBytes is, and closes the file. An error says what could not be written; that is not
// durable. Call Run once, and stop pushing before ctx ends.
func (s *Spill[T]) Run(ctx context.Context) error {
	defer s.store.stop()
	c := &committer[T]{Spill: s}
	retry := retryMin
	for {
		if !c.wait(ctx) {
			return c.last()
		}
		for {
			progress, err := c.round(false)
			c.tellFull(err != nil || c.cut)
			if err == nil {
				retry = retryMin
				if progress && (c.more || s.pressed()) && ctx.Err() == nil {
					continue
				}
				break
			}
			s.failed(err, false)
			pause(ctx, retry)
			retry = min(2*retry, retryMax)
			if ctx.Err() != nil {
				break
			}
		}
	}
}

// committer is what the goroutine of Run owns.
type committer[T any] struct {
	*Spill[T]
	entries []spilled[T]   // what the commit at hand writes
	writers []*blockWriter // their memory is used again while the queue spills
	cut     bool           // the last commit found no room on disk
	full    bool           // what onFull was last called with
	more    bool           // there was more to write than the last commit took
	doubt   bool           // a commit was begun and not finished: the file may have what it wrote
}

// tellFull tells onFull if that is news.
func (c *committer[T]) tellFull(full bool) {
	if full != c.full && c.onFull != nil {
		c.onFull(full)
	}
	c.full = full
}

// wait returns true when there may be something to do, and false when ctx has ended.
func (c *committer[T]) wait(ctx context.Context) bool {
	c.mu.Lock()
	spilling, patient, young := c.spilling, c.patient, c.young()
	c.mu.Unlock()
	var interval <-chan time.Time
	after := func(d time.Duration) (stop func() bool) {
		t := time.NewTimer(d)
		interval = t.C
		return t.Stop
	}
	switch {
	case spilling:
		defer after(c.opts.SyncInterval)()
	case patient:
		defer after(patienceTick)()
		defer c.look()
	case c.opts.Since != nil:
		defer after(young)()
	}
	if !spilling {
		c.writers, c.entries = nil, nil
		defer c.age()
	}
	select {
	case <-c.wake:
	case <-interval:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// young is for how long no item can be older than MaxAge.
func (s *Spill[T]) young() time.Duration {
	if s.opts.Since == nil || s.head.len() == 0 {
		return s.opts.MaxAge
	}
	return max(time.Millisecond, s.opts.MaxAge-time.Since(s.opts.Since(s.head.front().v)))
}

// age makes the queue spill if an item has waited for longer than MaxAge.
func (s *Spill[T]) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Since != nil && s.head.len() > 0 && time.Since(s.opts.Since(s.head.front().v)) >= s.opts.MaxAge {
		s.persist()
	}
}

// last commits everything that is there now.
func (c *committer[T]) last() error {
	if mutant.On("no-spill-at-end") {
		return nil
	}
	c.mu.Lock()
	end := c.tail
	c.persist()
	c.mu.Unlock()
	for {
		progress, err := c.round(true)
		if err != nil {
			c.failed(err, false)
			return fmt.Errorf("fifo: write to the spill file at the end: %w", err)
		}
		c.mu.Lock()
		left := 0
		if from := max(c.durable, c.ackedUpTo()); c.spilling && from < end {
			left = int(end - from)
		}
		c.mu.Unlock()
		if left == 0 {
			return nil
		}
		if !progress {
			return fmt.Errorf("fifo: the last %d items could not be written to the spill file", left)
		}
	}
}

// pressed reports whether the next commit should follow at once.
func (s *Spill[T]) pressed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spilling && (s.pressing() || s.blocks.len() > maxFreed && s.blocks.at(maxFreed).last <= s.ackedUpTo())
}

// failed records a failure of the file.
func (s *Spill[T]) failed(err error, reading bool) {
	s.mu.Lock()
	s.errs++
	tell := !s.failing && time.Since(s.failedAt) >= failureLog
	if tell {
		s.failing, s.failedAt = true, time.Now()
	}
	s.lastErr = err.Error()
	if reading {
		s.readFail = true
		s.kick()
	}
	s.mu.Unlock()
	if tell {
		s.opts.Logger.Error("The spill file fails; it is tried again and again", "path", s.opts.Path, "error", err)
	}
}

// plan is what a commit is to do.
type plan struct {
	acked      uint64
	known      uint64          // the number of the newest item that is on disk or acknowledged
	savedAcked uint64          // acked as the file has it
	readFail   bool            // reading failed, so a commit has to show whether the file is damaged
	firstKept  uint64          // begins the oldest block that is still needed; 0: none is
	fileBytes  int64           // the file's size
	room       int64           // what may be written; negative: no bound
	freed      int             // how many blocks go
	freedBytes int64           // and what they take
	empty      bool            // nothing that is needed lies on disk
	leave      bool            // that is so, and the queue need not spill any more
	unused     bool            // and the file has nothing of it
	marks      map[string]mark // of acknowledged items, that the file does not have
}

// plan looks at what there is to do; ok is false if that is nothing. Items to write are in c.entries.
func (c *committer[T]) plan(final bool) (p plan, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.entries, c.more, c.cut = c.entries[:0], false, false
	if !c.spilling {
		return p, false
	}
	p = plan{
		acked: c.ackedUpTo(), known: max(c.durable, c.ackedUpTo()),
		savedAcked: c.savedAcked, readFail: c.readFail, fileBytes: c.fileBytes, room: -1, marks: map[string]mark{},
	}
	for p.freed < min(c.blocks.len(), maxFreed) && c.blocks.at(p.freed).last <= p.acked {
		p.freedBytes += c.blocks.at(p.freed).bytes
		p.freed++
	}
	if p.freed < c.blocks.len() {
		p.firstKept = c.blocks.at(p.freed).first
	}
	p.empty = c.blocks.len() == 0 || c.blocks.at(c.blocks.len()-1).last <= p.acked
	if c.opts.MaxDiskBytes > 0 && !final {
		p.room = max(0, c.opts.MaxDiskBytes-c.diskBytes+p.freedBytes)
	}
	pending := p.known < c.tail
	if p.empty && (!pending || !final && c.calm()) {
		p.leave, p.unused = true, c.blocks.len() == 0 && !c.doubt
		p.freed, p.freedBytes, p.firstKept = c.blocks.len(), c.diskBytes, 0
	} else {
		c.collect(p.known)
	}
	for source, m := range c.marks {
		if m.seq > c.savedMarks {
			p.marks[source] = m
		}
	}
	return p, p.leave || len(c.entries) > 0 || p.acked > p.savedAcked || p.readFail
}

// calm reports whether all there is fits in memory with room to spare, and may stay there.
func (s *Spill[T]) calm() bool {
	return s.waiters.head == nil && !s.headShare.exceeded(s.items, s.bytes) && s.due <= max(s.durable, s.ackedUpTo())
}

// collect puts the next items to write, those behind known, to c.entries.
func (c *committer[T]) collect(known uint64) {
	var bytes int64
	take := func(d *deque[spilled[T]], from int) {
		for i := from; i < d.len() && (bytes < c.commitBytes || len(c.entries) == 0); i++ {
			c.entries = append(c.entries, *d.at(i))
			bytes += d.at(i).size
		}
	}
	if c.headEnd > known { // numbers have no holes here, since nothing of it was read back
		take(&c.head, c.head.len()-int(c.headEnd-known))
		known = c.headEnd
	}
	if c.buf.len() > 0 && (len(c.entries) == 0 || c.entries[len(c.entries)-1].seq == known) {
		take(&c.buf, int(known+1-c.buf.front().seq))
	}
	c.more = bytes >= c.commitBytes
}

// round makes one commit and reports whether it wrote or deleted anything. An error may come with progress.
func (c *committer[T]) round(final bool) (progress bool, err error) {
	p, ok := c.plan(final)
	if !ok {
		return false, nil
	}
	if p.unused {
		c.report(c.leave())
		return true, nil
	}
	blocks, marks, encodeErr := c.encode(p)
	if len(blocks) == 0 && !p.leave && p.acked <= p.savedAcked && !p.readFail { // no room, or it can't be encoded
		return false, encodeErr
	}
	last := p.known
	if n := len(blocks); n > 0 {
		last = blocks[n-1].last
	}
	fileBytes, err := c.write(p, blocks, marks, last)
	whole := encodeErr == nil
	if err != nil && len(blocks) > 0 && p.freed > 0 {
		// Room that a commit frees is there for the next one: on a full disk the deletions have to go alone.
		whole, blocks, marks, last = false, nil, p.marks, p.known
		fileBytes, err = c.write(p, blocks, marks, last)
	}
	if err != nil {
		return false, err
	}
	settled, progress := c.finish(p, blocks, marks, last, fileBytes, whole)
	clear(c.entries)
	c.report(settled)
	return progress, encodeErr
}

// write makes p durable.
func (c *committer[T]) write(p plan, blocks []*blockWriter, marks map[string]mark, last uint64) (int64, error) {
	c.doubt = true
	commit := &spillCommit{known: p.known, freedBytes: p.freedBytes, blocks: blocks, acked: p.acked, last: last, marks: map[string]string{}}
	if commit.keep = p.firstKept; commit.keep == 0 {
		commit.keep = p.acked + 1
	}
	for source, m := range marks {
		commit.marks[source] = m.position
	}
	if p.leave && p.fileBytes > c.shrinkAbove {
		if size, err := c.rewrite(p, false); err == nil {
			return size, nil
		}
		// A full disk perhaps. An empty file that is too large will do, too; it is tried again when it is empty the next time.
	}
	fileBytes, err := c.store.commit(commit)
	damaged := isDamage(err)
	if !damaged && !errors.Is(err, fs.ErrNotExist) {
		return fileBytes, err
	}
	if !damaged && p.firstKept > 0 {
		c.opts.Logger.Error("The spill file is gone, with items in it", "path", c.opts.Path)
	}
	if _, err := c.rewrite(p, damaged); err != nil {
		return 0, err
	}
	return c.store.commit(commit)
}

// rewrite replaces the file: it is not there, or damaged, or too large for what it holds. The new one has what the file
// should have before the commit at hand.
func (c *committer[T]) rewrite(p plan, damaged bool) (int64, error) {
	var kept []block
	c.mu.Lock()
	for i := range c.blocks.len() {
		if b := *c.blocks.at(i); b.last > p.acked {
			kept = append(kept, b)
		}
	}
	c.mu.Unlock()
	marks := c.Positions()
	for source, m := range p.marks {
		marks[source] = m.position
	}
	return c.store.rewrite(kept, &spillCommit{known: p.known, acked: p.acked, last: p.known, marks: marks}, damaged)
}

// finish takes over that p is durable, and gives the items that are settled by that.
func (c *committer[T]) finish(p plan, blocks []*blockWriter, marks map[string]mark, last uint64, fileBytes int64, ok bool) (settled []T, progress bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range p.freed {
		c.diskBytes -= c.blocks.pop().bytes
		progress = true
	}
	for _, w := range blocks {
		c.blocks.push(w.block)
		c.diskBytes += w.bytes
		progress = true
	}
	c.doubt = false
	c.durable, c.savedMarks, c.savedAcked, c.fileBytes = last, last, p.acked, fileBytes
	for source, m := range marks {
		c.positions[source] = m.position
		if c.marks[source].seq <= last {
			delete(c.marks, source)
		}
	}
	settled = c.release(nil, last)
	acked := c.ackedUpTo()
	for _, e := range c.entries {
		if e.seq > acked && e.seq <= last {
			settled = append(settled, e.v)
		}
	}
	for c.buf.len() > 0 && c.buf.front().seq <= last {
		if e := c.buf.front(); c.headEnd+1 == e.seq && (c.head.len() == 0 || c.headShare.fits(c.head.len(), c.headBytes(), e.size)) {
			c.advance()
			continue
		}
		e := c.buf.pop()
		c.bufBytes -= e.size
		c.remove(e.size)
	}
	if ok {
		c.recovered()
	}
	if p.leave {
		settled = c.leaveLocked(settled)
		progress = true
	}
	c.admit()
	return settled, progress
}

// release appends what the receipts up to a number stand for, and drops them.
func (s *Spill[T]) release(settled []T, upTo uint64) []T {
	for s.receipts.len() > 0 && s.receipts.front().seq <= upTo {
		settled = append(settled, s.receipts.pop().v)
	}
	return settled
}

// recovered ends a time of failures.
func (c *committer[T]) recovered() {
	c.readFail, c.lastErr = false, ""
	if c.failing {
		c.failing = false
		c.opts.Logger.Info("The spill file works again", "path", c.opts.Path)
	}
}

// leave ends spilling: nothing that is needed is on disk. It gives the items that are settled by that.
func (c *committer[T]) leave() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recovered()
	settled := c.leaveLocked(nil)
	c.admit()
	return settled
}

func (c *committer[T]) leaveLocked(settled []T) []T {
	for c.buf.len() > 0 {
		c.advance()
	}
	c.spilling = false
	return c.release(settled, c.tail)
}

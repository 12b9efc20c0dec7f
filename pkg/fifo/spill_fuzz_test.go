package fifo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// crashTest drives a queue step by step, with commits where the test wants them, and ends it and opens it again.
// There are some sources, each of which pushes 1, 2, 3 and so on, and after a restart goes on behind its position.
// What an item stands for is in its history.
type crashTest struct {
	*Queue[item]
	t       *testing.T
	c       *committer[item]
	o       Options[item]
	policy  string
	failing bool   // nothing can be encoded
	during  func() // is called once in the next commit
	// opened counts the runs of the queue.
	opened int
	// opening is what was on disk then: an orderly end writes everything.
	opening int64
	sources [3]crashSource

	// Of this run of the queue:
	atFirst int // what was in it
	gaps    int // how many gap items were made
	taken   []item
	took    []item     // what was taken at any time
	mark    *crashMark // nil if there is none
}

// crashMark is a place in the queue behind which a restart must begin as soon as everything before it is gone.
type crashMark struct {
	number   uint64
	took     []item
	recorded []int // by source: what it had pushed
}

// crashSource is a source of a crashTest.
type crashSource struct {
	next      int          // what it pushes next
	last      int          // the last that it pushed at any time
	unsettled map[int]bool // what it pushed in this run and is not settled
	delivered map[int]bool // what was acknowledged at any time
	merged    map[int]bool // what was merged into a newer item at any time
	gone      map[int]bool // what must not come again after a restart

	// Of this run of the queue:
	first int // what it pushed first
	took  int // the last that was taken; 0 if there is none
	again bool
}

// settledUpTo is what a checkpoint says: after a restart the source goes on behind it, or behind its position in the
// file if the file has items and the position is the later one.
func (s *crashSource) settledUpTo() int {
	settled := s.next - 1
	for id := range s.unsettled {
		settled = min(settled, id-1)
	}
	return settled
}

func newCrashTest(t *testing.T, path, policy string, maxItems int, maxBytes, diskBytes int64) *crashTest {
	d := &crashTest{t: t, o: spillOptions(path), policy: policy}
	for i := range d.sources {
		d.sources[i] = crashSource{
			next: 1, first: 1, unsettled: map[int]bool{}, delivered: map[int]bool{}, merged: map[int]bool{},
			gone: map[int]bool{},
		}
	}
	d.o.MaxItems, d.o.MaxBytes, d.o.MaxDiskBytes = maxItems, maxBytes, diskBytes
	setPolicy(&d.o, policy)
	d.o.OnSettled = func(items []item) {
		for _, v := range items {
			d.settle(v)
		}
	}
	if d.o.Gap != nil {
		d.o.Gap = func(gap, dropped item) (item, bool) {
			folded, ok := foldItem(gap, dropped)
			switch {
			case gap == item{}:
				d.gaps++
			case ok:
				d.settle(dropped)
			}
			return folded, ok
		}
	}
	d.o.OnMerge = func(older item) {
		d.settle(older)
		for _, id := range ids(t, older) {
			d.sources[older.Key].merged[id] = true
		}
	}
	encode := d.o.Encode
	d.o.Encode = func(dst []byte, v item) ([]byte, error) {
		if f := d.during; f != nil {
			d.during = nil
			f()
		}
		if d.failing {
			return nil, errors.New("no disk")
		}
		return encode(dst, v)
	}
	d.o.OnCorrupt = func(l Loss) []item { t.Fatalf("%d items lost: %v", l.Items(), l.Err); return nil }
	d.open()
	return d
}

// settle notes that an item is settled, once.
func (d *crashTest) settle(v item) {
	s := &d.sources[v.Key]
	if !s.unsettled[v.ID] {
		d.t.Fatalf("item %d of source %d is settled again, or was pushed by an earlier process", v.ID, v.Key)
	}
	delete(s.unsettled, v.ID)
}

func (d *crashTest) open() {
	q, err := New(d.o)
	if err != nil {
		d.t.Fatal(err)
	}
	q.commitBytes = int64(1 + 40*(d.opened%3))
	q.batchBytes = 10 * q.commitBytes
	d.opened++
	d.Queue, d.c = q, &committer[item]{Queue: q}
	d.opening = q.log.Size()
	d.atFirst, d.gaps, d.taken, d.took, d.mark = q.Stats().Items, 0, nil, nil, nil
}

func (d *crashTest) close() {
	if err := d.Queue.log.Close(); err != nil {
		d.t.Error(err)
	}
}

// push pushes an item of the source, if there is room. Some are large when they are encoded.
func (d *crashTest) push(source int, size int64, large bool) {
	s := &d.sources[source]
	v := newItem(s.next, source, size)
	if large {
		v.Pad = strings.Repeat("x", 3000*(1+v.ID%30))
	}
	s.unsettled[v.ID] = true
	s.next++
	if d.Push(ended(d.t), v) != nil {
		delete(s.unsettled, v.ID)
		s.next--
		if d.full && d.policy == dropOldest {
			d.t.Fatal("a push waits under drop-oldest")
		}
	}
	s.last = max(s.last, s.next-1)
}

// take takes what can be taken.
func (d *crashTest) take(limit int, maxBytes int64) {
	if err := d.fill(limit, maxBytes); err != nil {
		d.t.Fatal(err)
	}
	batch, _ := d.tryTake(nil, limit, maxBytes)
	if s := d.Stats(); len(batch) == 0 && s.Taken == 0 && s.Items > 0 {
		d.t.Fatalf("nothing to take, but %d items wait", s.Items)
	}
	for _, v := range batch {
		for _, id := range ids(d.t, v) {
			d.follows(v, id)
		}
	}
	d.taken, d.took = append(d.taken, batch...), append(d.took, batch...)
	d.admitMore()
}

// follows checks that nothing is missing between what was taken of a source before and an item. What was delivered by
// an earlier process, or was merged into a newer item, may be missing. In each run a source goes back once: what
// it pushes first may have been on disk already.
func (d *crashTest) follows(v item, id int) {
	s := &d.sources[v.Key]
	if s.gone[id] {
		d.t.Fatalf("%d of source %d comes again, but it was gone", id, v.Key)
	}
	if id <= s.took {
		if s.again || id != s.first {
			d.t.Fatalf("source %d: took %d behind %d; it began with %d", v.Key, id, s.took, s.first)
		}
		s.again = true
	}
	from := s.took + 1
	for missing := from; missing < id; missing++ {
		if !s.delivered[missing] && !s.merged[missing] {
			d.t.Fatalf("source %d: took %d behind %d, but %d was not delivered", v.Key, id, s.took, missing)
		}
	}
	s.took = id
}

func (d *crashTest) ack(n int) {
	n = min(n, len(d.taken))
	for _, v := range d.taken[:n] {
		for _, id := range ids(d.t, v) {
			d.sources[v.Key].delivered[id] = true
		}
	}
	d.taken = d.taken[n:]
	d.Ack(n)
}

// commit makes one commit; if fails, the file that it begins can't be made, if it begins one.
func (d *crashTest) commit(fails bool) {
	var obstacles []string
	if fails {
		for _, n := range []uint64{d.durable + 1, d.ackedUpTo() + 1} {
			name := filepath.Join(d.o.Path, fmt.Sprintf("%016x.log", n))
			if os.Mkdir(name, 0o700) == nil {
				obstacles = append(obstacles, name)
			}
		}
	}
	_, err := d.c.round(false)
	if err != nil && len(obstacles) == 0 && !d.failing {
		d.t.Fatal(err)
	}
	d.c.setFull(err != nil || d.c.cut)
	for _, name := range obstacles {
		if err := os.Remove(name); err != nil {
			d.t.Fatal(err)
		}
	}
}

// bookmark checks whether everything before the mark is gone, or makes a new one.
func (d *crashTest) bookmark() {
	if d.mark == nil {
		d.mark = &crashMark{number: d.Taken(), took: d.took}
		for i := range d.sources {
			d.mark.recorded = append(d.mark.recorded, d.sources[i].next-1)
		}
	}
	gone := d.Gone(d.mark.number)
	for i, number := range d.mark.recorded {
		gone = gone && d.sources[i].settledUpTo() >= number
	}
	if !gone {
		return
	}
	for _, v := range d.mark.took {
		for _, id := range ids(d.t, v) {
			d.sources[v.Key].gone[id] = true
		}
	}
	d.mark = nil
}

// restart ends the queue, in order or by a crash, and opens it again.
func (d *crashTest) restart(orderly bool) {
	d.failing = false
	left := d.Stats().Items
	if orderly {
		d.Persist()
		for {
			progress, err := d.c.round(true)
			if err != nil {
				d.t.Fatal(err)
			}
			if !progress {
				break
			}
		}
	}
	d.close()
	d.open()
	if orderly && d.atFirst != left {
		d.t.Fatalf("%d items after an orderly restart, %d before", d.atFirst, left)
	}
	for i := range d.sources {
		s, position := &d.sources[i], 0
		if p := d.Positions()[fmt.Sprint("source", i)]; p != "" && d.atFirst > 0 {
			if _, err := fmt.Sscan(p, &position); err != nil {
				d.t.Fatal(err)
			}
		}
		s.next = max(position, s.settledUpTo()) + 1
		s.first, s.took, s.again = s.next, 0, false
		clear(s.unsettled) // what is after the position comes again, and is settled again
	}
}

func (d *crashTest) check() {
	checkQueue(d.t, d.Queue)
	s := d.Stats()
	items := d.atFirst + d.gaps + int(s.Pushed-s.Dropped-s.Merged-s.Acked)
	if s.Items != items || s.Taken != len(d.taken) {
		d.t.Fatalf("%+v, want %d items, %d taken", s, items, len(d.taken))
	}
	if onDisk := d.log.Size(); d.o.MaxDiskBytes > 0 && onDisk > max(d.o.MaxDiskBytes, d.opening) &&
		d.durable > d.log.Acked()+1 {
		d.t.Fatalf("%d bytes on disk, at most %d", onDisk, d.o.MaxDiskBytes)
	}
}

func (d *crashTest) step(op, arg byte) {
	switch op % 16 {
	case 0, 1, 2, 3, 4, 5:
		d.push(int(arg)%3, int64(arg%32), arg%16 == 15)
	case 6, 7, 8:
		d.take(1+int(arg%8), int64(arg))
	case 9, 10:
		d.ack(int(arg % 8))
	case 11, 12, 13:
		switch arg % 8 {
		case 0:
			d.Persist()
		case 1, 2, 3: // what happens while Run writes
			d.during = func() {
				for n := range 1 + int(arg/8)%8 {
					d.push(n%3, int64(arg)%32, false)
				}
				if arg >= 128 {
					d.take(1+int(arg%4), 100)
					d.ack(int(arg % 3))
				}
			}
		}
		d.commit(false)
		d.during = nil
	case 14:
		if arg%4 == 3 {
			d.failing = !d.failing
		}
		d.commit(arg%2 == 0)
	case 15:
		if arg%4 == 0 {
			d.restart(arg%8 == 0)
		}
	}
	d.bookmark()
	d.check()
}

// finish lets each source push to its end and takes everything. Then all was delivered, or merged into what was.
func (d *crashTest) finish() {
	d.failing = false
	for more := true; more; {
		more = d.Stats().Items > 0
		for i := range d.sources {
			if s := &d.sources[i]; s.next <= s.last {
				d.push(i, 1, false)
				more = true
			}
		}
		d.take(8, 100)
		d.ack(8)
		d.commit(false)
		d.check()
	}
	d.commit(false)
	if d.spilling {
		d.t.Fatal("still spilling")
	}
	for i, s := range d.sources {
		for id := 1; id <= s.last; id++ {
			if !s.delivered[id] && !s.merged[id] {
				d.t.Fatalf("source %d: %d of %d was not delivered", i, id, s.last)
			}
		}
		if len(s.unsettled) > 0 {
			d.t.Fatalf("source %d: not settled: %v", i, s.unsettled)
		}
	}
	if s := d.Stats(); d.policy != dropOldest && s.Dropped > 0 || d.policy != compact && s.Merged > 0 {
		d.t.Fatalf("%s: %+v", d.policy, s)
	}
}

// FuzzSpill compares a queue with what it promises, with a disk that fills, fails and recovers, through crashes at any
// moment between two commits. What a crash in a commit leaves is a matter of internal/segment.
func FuzzSpill(f *testing.F) {
	f.Add(byte(8), byte(0), byte(0), []byte("0a0b0c0d0e0f0g0h0i0j0k;;;;;;0a0b0c??6a6b6c9d9e9f????;;00"))
	f.Add(byte(2), byte(60), byte(2), []byte(strings.Repeat("0a1b2c;a6e9b>b?d", 20)))
	f.Add(byte(5), byte(40), byte(1), []byte(strings.Repeat("0O1O2_;a0o1o2b;z>b6e6f9e9f?h", 30)))
	f.Add(byte(5), byte(0), byte(3), []byte(strings.Repeat("0O1O2_;a0o1o2b;z>b6e6f9e9f?h>c", 30)))
	f.Add(byte(5), byte(0), byte(5), []byte(strings.Repeat("0O1O2_;a0o1o2b;z>b6e6f9e9f?h>c", 30)))
	f.Fuzz(func(t *testing.T, maxItems, maxBytes, disk byte, ops []byte) {
		if len(ops) > 400 {
			return
		}
		dir := t.TempDir()
		policy := []string{block, dropOldest, compact}[disk/2%3]
		d := newCrashTest(t, filepath.Join(dir, "q"), policy, 2+int(maxItems%20), int64(maxBytes), int64(disk%2)*20000)
		defer func() { d.close() }()
		for ; len(ops) >= 2; ops = ops[2:] {
			d.step(ops[0], ops[1])
		}
		d.finish()
		d.restart(true)
		if d.atFirst > 0 {
			t.Fatalf("%d items after everything was acknowledged", d.atFirst)
		}
		names, err := os.ReadDir(dir)
		if err != nil || len(names) > 1 {
			t.Fatalf("files: %v, %v", names, err)
		}
	})
}

// A commit that fails is as none, and what was acknowledged is durable even so.
func TestSpillFailedCommit(t *testing.T) {
	d := newCrashTest(t, filepath.Join(t.TempDir(), "q"), block, 4, 0, 16)
	defer func() { d.close() }()
	d.commitBytes, d.batchBytes = 1000, 1000
	for range 8 {
		for range 3 {
			d.push(0, 1, false)
		}
		d.commit(true)
		d.take(1, 1)
		d.ack(1)
		d.check()
	}
	d.push(1, 1, false)
	d.commit(false)
	d.check()
	d.restart(false)
	d.finish()
}

// A policy gives something up while Run writes: not what is written.
func TestPolicyDuringACommit(t *testing.T) {
	for _, policy := range []string{dropOldest, compact} {
		d := newCrashTest(t, filepath.Join(t.TempDir(), "q"), policy, 8, 0, 0)
		d.commitBytes, d.batchBytes = 1000, 1000
		for range 4 {
			for range 8 {
				d.push(0, 1, false)
			}
			d.Persist()
			d.failing = true
			d.commit(false)
			d.failing = false
			before := d.Stats()
			d.during = func() {
				for range 5 {
					d.push(0, 1, false)
				}
			}
			d.commit(false)
			d.check()
			if s := d.Stats(); s.Dropped+s.Merged < before.Dropped+before.Merged+3 {
				t.Errorf("%s: nothing is given up: %+v, before %+v", policy, s, before)
			}
			d.take(3, 100)
			d.ack(2)
		}
		d.restart(false)
		d.finish()
		d.close()
	}
}

// The fuzz target's steps in a long random run.
func TestSpillRandomCrashes(t *testing.T) {
	for _, policy := range []string{block, dropOldest, compact} {
		gaveUp := int64(0)
		for seed := range scale.Of[uint64](1, 6) {
			random := rand.New(rand.NewPCG(seed, 5)).IntN
			d := newCrashTest(
				t, filepath.Join(t.TempDir(), "q"), policy,
				2+random(20), int64(random(2)*random(200)), int64(random(2)*100000),
			)
			start := time.Now()
			for n := 0; n < 3000 && time.Since(start) < 5*time.Second; n++ {
				d.step(byte(random(256)), byte(random(256)))
				s := d.Stats()
				gaveUp = max(gaveUp, s.Dropped+s.Merged)
			}
			d.finish()
			d.close()
		}
		if gaveUp == 0 && policy != block {
			t.Errorf("%s: the policy never applied", policy)
		}
	}
}

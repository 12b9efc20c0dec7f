package fifo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// crashTest drives a Spill step by step, with commits where the test wants them, and ends it and opens it again.
// There are some sources, each of which pushes 1, 2, 3 and so on, and after a restart goes on behind its position.
type crashTest struct {
	*Spill[item]
	t *testing.T
	c *committer[item]
	o SpillOptions[item]
	// opened counts the runs of the queue.
	opened int
	// opening is what was on disk then: an orderly end writes everything.
	opening int64

	next  [3]int // what each source pushes next
	acked [3]int // up to what each source's items were acknowledged at any time
	// settled is up to what OnSettled was called, which is what a checkpoint may say: after a restart a source goes
	// on behind it, or behind its position in the file if the file has items and the position is the later one.
	settled [3]int

	// Of this run of the queue:
	base  uint64 // the number in front of that of all[0]
	all   []item // what is or was in it, in order
	taken int    // how many of all were taken
	freed int    // how many of those were acknowledged
}

func newCrashTest(t *testing.T, path string, maxItems int, maxBytes, diskBytes int64) *crashTest {
	d := &crashTest{t: t, o: spillOptions(path), next: [3]int{1, 1, 1}}
	d.o.MaxItems, d.o.MaxBytes, d.o.MaxDiskBytes = maxItems, maxBytes, diskBytes
	d.o.OnSettled = func(items []item) {
		for _, v := range items {
			if v.ID != d.settled[v.Key]+1 {
				t.Fatalf("item %d of source %d is settled behind %d", v.ID, v.Key, d.settled[v.Key])
			}
			d.settled[v.Key] = v.ID
		}
	}
	d.o.OnCorrupt = func(l Loss) []item { t.Fatalf("%d items lost: %v", l.Items(), l.Err); return nil }
	d.open()
	return d
}

func (d *crashTest) open() {
	s, err := NewSpill(d.o)
	if err != nil {
		d.t.Fatal(err)
	}
	s.commitBytes = int64(1 + 40*(d.opened%3))
	s.batchBytes = s.commitBytes
	d.opened++
	d.Spill, d.c = s, &committer[item]{Spill: s}
	d.opening = s.log.Size()
}

func (d *crashTest) close() {
	if err := d.Spill.log.Close(); err != nil {
		d.t.Error(err)
	}
}

// push pushes an item of the source, if there is room. Some are large when they are encoded.
func (d *crashTest) push(source int, size int64, large bool) {
	v := item{ID: d.next[source], Key: source, Size: size}
	if large {
		v.Hist = strings.Repeat("x", 3000*(1+v.ID%30))
	}
	if d.Push(ended(d.t), v) == nil {
		d.next[source]++
		d.all = append(d.all, v)
	}
}

// take takes what can be taken.
func (d *crashTest) take(limit int, maxBytes int64) {
	if err := d.fill(limit, maxBytes); err != nil {
		d.t.Fatal(err)
	}
	batch, _ := d.tryTake(nil, limit, maxBytes)
	if len(batch) == 0 && d.core.taken.len() == 0 && d.taken < len(d.all) {
		d.t.Fatalf("nothing to take, but %d items wait", len(d.all)-d.taken)
	}
	for _, v := range batch {
		if v != d.all[d.taken] {
			d.t.Fatalf("took %+v, want %+v", v, d.all[d.taken])
		}
		d.taken++
	}
	d.admitMore()
}

func (d *crashTest) ack(n int) {
	n = min(n, d.taken-d.freed)
	for _, v := range d.all[d.freed : d.freed+n] {
		d.acked[v.Key] = max(d.acked[v.Key], v.ID)
	}
	d.freed += n
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
	if err != nil && len(obstacles) == 0 {
		d.t.Fatal(err)
	}
	for _, name := range obstacles {
		if err := os.Remove(name); err != nil {
			d.t.Fatal(err)
		}
	}
}

// restart ends the queue, in order or by a crash, and opens it again.
func (d *crashTest) restart(orderly bool) {
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
	base, all := d.base, d.all
	d.open()
	from, to := d.headEnd, d.tail
	d.base, d.all, d.taken, d.freed = from, nil, 0, 0
	if to > from {
		d.all = append(d.all, all[from-base:to-base]...)
	}
	for source := range d.next {
		position := 0
		if p := d.Positions()[fmt.Sprint("source", source)]; p != "" {
			if _, err := fmt.Sscan(p, &position); err != nil {
				d.t.Fatal(err)
			}
		}
		if i := slices.IndexFunc(
			d.all,
			func(v item) bool { return v.Key == source },
		); i >= 0 &&
			position < d.settled[source] {
			d.t.Fatalf(
				"source %d: %d is settled, but %d is on disk, with the position %d",
				source,
				d.settled[source],
				d.all[i].ID,
				position,
			)
		}
		position = max(position, d.settled[source])
		// All up to the position was acknowledged, or is there.
		want := d.acked[source] + 1
		for _, v := range d.all {
			if v.Key == source && v.ID >= want {
				if v.ID != want {
					d.t.Fatalf("source %d: %d follows what was acknowledged up to %d", source, v.ID, want-1)
				}
				want++
			}
		}
		if position >= want {
			d.t.Fatalf("source %d: position %d, but %d is neither acknowledged nor there", source, position, want)
		}
		d.next[source] = position + 1
		// What is after the position comes again, and is settled again.
		d.settled[source] = position
	}
	// What is on disk, with what the sources push then, is in order for each source.
	last := d.acked
	for _, v := range d.all {
		if v.ID > last[v.Key]+1 {
			d.t.Fatalf("source %d: %d behind %d", v.Key, v.ID, last[v.Key])
		}
		last[v.Key] = v.ID
	}
}

func (d *crashTest) check() {
	checkSpill(d.t, d.Spill)
	stats := d.Stats()
	if stats.Items != len(d.all)-d.freed || stats.Taken != d.taken-d.freed {
		d.t.Fatalf("%+v, want %d items, %d taken", stats, len(d.all)-d.freed, d.taken-d.freed)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.items > d.o.MaxItems {
		d.t.Fatalf("%d items in memory, at most %d", d.items, d.o.MaxItems)
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
		if arg%8 == 0 {
			d.Persist()
		}
		d.commit(false)
	case 14:
		d.commit(arg%2 == 0)
	case 15:
		if arg%4 == 0 {
			d.restart(arg%8 == 0)
		}
	}
	d.check()
}

// finish takes everything.
func (d *crashTest) finish() {
	for range 1000 {
		d.take(8, 100)
		d.ack(8)
		d.commit(false)
		if d.freed == len(d.all) {
			break
		}
	}
	d.check()
	if d.freed < len(d.all) {
		d.t.Fatalf("%d items are left", len(d.all)-d.freed)
	}
	d.commit(false)
	if d.spilling {
		d.t.Fatal("still spilling")
	}
}

// FuzzSpill compares a Spill with what it promises, through crashes at any moment between two commits, and through
// commits that fail. What a crash in a commit leaves is a matter of internal/segment.
func FuzzSpill(f *testing.F) {
	f.Add(byte(8), byte(0), byte(0), []byte("0a0b0c0d0e0f0g0h0i0j0k;;;;;;0a0b0c??6a6b6c9d9e9f????;;00"))
	f.Add(byte(2), byte(60), byte(0), []byte(strings.Repeat("0a1b2c;a6e9b>b?d", 20)))
	f.Add(byte(5), byte(40), byte(1), []byte(strings.Repeat("0O1O2_;a0o1o2b;z>b6e6f9e9f?h", 30)))
	f.Fuzz(func(t *testing.T, maxItems, maxBytes, disk byte, ops []byte) {
		if len(ops) > 400 {
			return
		}
		dir := t.TempDir()
		d := newCrashTest(t, filepath.Join(dir, "q"), 2+int(maxItems%20), int64(maxBytes), int64(disk%2)*20000)
		defer func() { d.close() }()
		for ; len(ops) >= 2; ops = ops[2:] {
			d.step(ops[0], ops[1])
		}
		d.finish()
		d.restart(true)
		if len(d.all) > 0 {
			t.Fatalf("%d items after everything was acknowledged", len(d.all))
		}
		names, err := os.ReadDir(dir)
		if err != nil || len(names) > 1 {
			t.Fatalf("files: %v, %v", names, err)
		}
	})
}

// A commit that fails is as none, and what was acknowledged is durable even so.
func TestSpillFailedCommit(t *testing.T) {
	d := newCrashTest(t, filepath.Join(t.TempDir(), "q"), 4, 0, 16)
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

// The fuzz target's steps in a long random run.
func TestSpillRandomCrashes(t *testing.T) {
	for seed := range scale.Of[uint64](2, 6) {
		random := rand.New(rand.NewPCG(seed, 5)).IntN
		d := newCrashTest(
			t,
			filepath.Join(t.TempDir(), "q"),
			2+random(20),
			int64(random(2)*random(200)),
			int64(random(2)*100000),
		)
		start := time.Now()
		for n := 0; n < 3000 && time.Since(start) < 5*time.Second; n++ {
			d.step(byte(random(256)), byte(random(256)))
		}
		d.finish()
		d.close()
	}
}

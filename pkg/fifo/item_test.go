package fifo

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// control is the key of items that are never merged.
const control = -1

// item is what the tests queue.
type item struct {
	ID   int
	Key  int
	Size int64
	Hist string // the ids of all items that are in this one, in the order in which they went in
	Gap  bool
}

func newItem(id, key int, size int64) item {
	return item{ID: id, Key: key, Size: size, Hist: fmt.Sprint(id)}
}

func itemSize(v item) int64 { return v.Size }

// foldItem keeps one gap item for each key. It changes gaps in place, as it may.
func foldItem(gaps []item, dropped item) []item {
	i := slices.IndexFunc(gaps, func(g item) bool { return g.Key == dropped.Key })
	if i < 0 {
		return append(gaps, item{Key: dropped.Key, Size: 3, Hist: dropped.Hist, Gap: true})
	}
	gaps[i].Hist += "+" + dropped.Hist
	return gaps
}

// mergeItem gives an item that is smaller than both together; some are larger than the newer one alone.
func mergeItem(older, newer item) item {
	newer.Hist = older.Hist + "+" + newer.Hist
	newer.Size += older.Size / 2
	return newer
}

func mergeableItem(v item) bool { return v.Key != control }

func newTestRing(overflow Overflow, maxItems int, maxBytes int64) *Ring[item] {
	return NewRing(RingOptions[item]{
		MaxItems: maxItems, MaxBytes: maxBytes, Size: itemSize, Overflow: overflow, Gap: foldItem,
	}).(*Ring[item])
}

func newTestCompacting(maxItems int, maxBytes int64) *Compacting[item, int] {
	return NewCompacting(CompactingOptions[item, int]{
		MaxItems: maxItems, MaxBytes: maxBytes, Size: itemSize,
		Key: func(v item) int { return v.Key }, Mergeable: mergeableItem, Merge: mergeItem, OnMerge: func(item) {},
	}).(*Compacting[item, int])
}

// mustPush pushes items that must not have to wait.
func mustPush(t *testing.T, q Queue[item], items ...item) {
	t.Helper()
	for _, v := range items {
		if err := q.Push(ended(t), v); err != nil {
			t.Fatalf("Push(%+v) = %v, want it taken up", v, err)
		}
	}
}

// take takes what is there.
func take(t *testing.T, q Queue[item], limit int, maxBytes int64) []item {
	t.Helper()
	got, err := q.Take(t.Context(), nil, limit, maxBytes)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	return got
}

// wantHist compares the items' histories.
func wantHist(t *testing.T, what string, got []item, want ...string) {
	t.Helper()
	hist := []string{}
	for _, v := range got {
		if v.Gap {
			v.Hist = "gap " + v.Hist
		}
		hist = append(hist, v.Hist)
	}
	if diff := cmp.Diff(want, hist); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// checkDeque checks what the fields' comments promise.
func checkDeque[E comparable](t *testing.T, name string, d *deque[E]) {
	t.Helper()
	var zero E
	if len(d.buf)&(len(d.buf)-1) != 0 || d.n > len(d.buf) || len(d.buf) > max(keptDeque, 4*d.n) {
		t.Fatalf("%s: %d elements in %d slots", name, d.n, len(d.buf))
	}
	for i := d.n; i < len(d.buf); i++ {
		if e := d.buf[(d.head+i)%len(d.buf)]; e != zero {
			t.Fatalf("%s: free slot holds %v", name, e)
		}
	}
}

// checkLedger checks the invariants that all queues share. waiting and bytes are what the queue's waiting part has.
func checkLedger[T any](t *testing.T, c *core[T], waiting int, bytes int64, waitingGaps int) {
	t.Helper()
	checkDeque(t, "taken", &c.taken)
	items, gaps := waiting, waitingGaps
	for i := range c.taken.n {
		charge := c.taken.buf[(c.taken.head+i)%len(c.taken.buf)]
		if charge == gapCharge {
			gaps++
			continue
		}
		items++
		bytes += charge
	}
	if items != c.items || bytes != c.bytes || gaps != c.gaps {
		t.Fatalf(
			"ledger has %d items, %d bytes, %d gaps; the queue has %d, %d, %d",
			c.items,
			c.bytes,
			c.gaps,
			items,
			bytes,
			gaps,
		)
	}
	if !c.lifted && c.items > c.maxItems || !c.lifted && c.maxBytes > 0 && c.bytes > c.maxBytes && c.items > 1 {
		t.Fatalf("out of bounds: %d items (at most %d), %d bytes (at most %d)", c.items, c.maxItems, c.bytes, c.maxBytes)
	}
	if c.closed && len(c.waiters) > 0 {
		t.Fatal("a push waits on a closed queue")
	}
}

// checkRing checks every invariant of r's fields.
func checkRing(t *testing.T, r *Ring[item]) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	checkDeque(t, "waiting", &r.waiting)
	var bytes int64
	for i := range r.waiting.n {
		bytes += r.waiting.buf[(r.waiting.head+i)%len(r.waiting.buf)].size
	}
	checkLedger(t, &r.core, r.waiting.n, bytes, len(r.gaps))
	if len(r.gaps) == 0 && r.gaps != nil {
		t.Fatal("empty gaps are kept")
	}
	if r.overflow == DropOldest && len(r.waiters) > 0 && !r.holding {
		t.Fatal("a push waits under drop-oldest")
	}
}

// checkCompacting checks every invariant of c's fields.
func checkCompacting(t *testing.T, c *Compacting[item, int]) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var bytes int64
	waiting := 0
	newest := map[int]*node[item, int]{}
	superseded, searched := 0, c.search != &c.end
	for n := c.end.next; n != &c.end; n = n.next {
		if n.next.prev != n {
			t.Fatalf("%+v and its next are not linked", n)
		}
		if n == c.search {
			searched = false
		}
		waiting++
		bytes += n.size
		if n.keyed != mergeableItem(n.v) || n.size != n.v.Size {
			t.Fatalf("node %+v does not fit its item", n)
		}
		if !n.keyed {
			continue
		}
		older := newest[n.key]
		if n.older != older || older != nil && older.newer != n {
			t.Fatalf("%+v and its successor %+v are not linked", older, n.v)
		}
		if older != nil {
			superseded++
		}
		if older != nil && (searched || c.search == &c.end) {
			t.Fatalf("%+v has an older item, and will not be found", n.v)
		}
		newest[n.key] = n
	}
	checkLedger(t, &c.core, waiting, bytes, 0)
	if searched {
		t.Fatal("the next item of the search does not wait")
	}
	if len(newest) != len(c.latest) || len(newest) > c.spread {
		t.Fatalf("latest has %d keys, want %d; spread is %d", len(c.latest), len(newest), c.spread)
	}
	for key, n := range c.latest {
		if newest[key] != n || n.newer != nil {
			t.Fatalf("latest of key %d is not its newest item", key)
		}
	}
	if len(c.waiters) > 0 && superseded > 0 && !c.holding {
		t.Fatal("a push waits although something can be merged")
	}
	for _, n := range c.free {
		if *n != (node[item, int]{}) {
			t.Fatalf("free node holds %+v", n)
		}
	}
	if len(c.free) > maxFree {
		t.Fatalf("%d free nodes", len(c.free))
	}
}

// ended is a context that has ended: a Push that has to wait gives up at once.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

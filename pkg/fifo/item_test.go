package fifo

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// control is the key of items that are never merged.
const control = -1

// item is the type of the items in the tests.
type item struct {
	ID   int
	Key  int
	Size int64
	Hist string // the ids of all items that are in this one, in the order in which they went in
	Gap  bool
	Pad  string
}

func newItem(id, key int, size int64) item {
	return item{ID: id, Key: key, Size: size, Hist: fmt.Sprint(id)}
}

func itemSize(v item) int64 { return v.Size }

// foldItem keeps one gap item for each key. It has the id of the first item that it stands for.
func foldItem(gap, dropped item) (item, bool) {
	if gap == (item{}) {
		return item{ID: dropped.ID, Key: dropped.Key, Size: 3, Hist: dropped.Hist, Gap: true}, true
	}
	if gap.Key != dropped.Key {
		return item{}, false
	}
	gap.Hist += "+" + dropped.Hist
	return gap, true
}

// mergeItem returns an item that is smaller than both items together, but can be larger than the newer one alone.
func mergeItem(older, newer item) item {
	newer.Hist = older.Hist + "+" + newer.Hist
	newer.Size += older.Size / 2
	return newer
}

func itemKey(v item) string {
	if v.Key == control {
		return ""
	}
	return fmt.Sprint(v.Key)
}

// The overflow policies.
const (
	block      = "block"
	dropOldest = "drop-oldest"
	compact    = "compact"
)

// setPolicy sets the functions of a policy.
func setPolicy(o *Options[item], policy string) {
	switch policy {
	case dropOldest:
		o.Gap = foldItem
	case compact:
		o.Key, o.Merge, o.OnMerge = itemKey, mergeItem, func(item) {}
	}
}

// newFull returns a queue that spills, with a disk that has no room.
func newFull(t testing.TB, policy string, maxItems int, maxBytes int64, change ...func(*Options[item])) *Queue[item] {
	t.Helper()
	o := spillOptions(filepath.Join(t.TempDir(), "q"))
	o.MaxItems, o.MaxBytes = maxItems, maxBytes
	setPolicy(&o, policy)
	for _, f := range change {
		f(&o)
	}
	q, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	q.begin()
	q.full = true
	return q
}

// pusher and taker are the methods of a queue that the helpers require.
type (
	pusher interface {
		Push(ctx context.Context, v item) error
	}
	taker interface {
		Take(ctx context.Context, buf []item, limit int, maxBytes int64) ([]item, error)
	}
)

// mustPush pushes items that must not have to wait.
func mustPush(t *testing.T, q pusher, items ...item) {
	t.Helper()
	for _, v := range items {
		if err := q.Push(ended(t), v); err != nil {
			t.Fatalf("Push(%+v) = %v, want it taken up", v, err)
		}
	}
}

// take takes the items that can be taken at once.
func take(t *testing.T, q taker, limit int, maxBytes int64) []item {
	t.Helper()
	got, err := q.Take(t.Context(), nil, limit, maxBytes)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	return got
}

// takeAll takes and acknowledges all items.
func takeAll(t *testing.T, q *Queue[item]) (all []item) {
	t.Helper()
	q.Ack(q.Stats().Taken)
	for q.Stats().Items > 0 {
		batch := take(t, q, 100, 1<<40)
		all = append(all, batch...)
		q.Ack(len(batch))
	}
	return all
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

// ended is a context that has ended: a Push that has to wait gives up at once.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// checkList checks the links and counts of a list.
func checkList(t *testing.T, name string, l *list[item]) {
	t.Helper()
	items, gaps, bytes := 0, 0, int64(0)
	for n := range l.all() {
		if n.next.prev != n || n.prev.next != n {
			t.Fatalf("%s: %+v and its neighbors are not linked", name, n.v)
		}
		if n.size != n.v.Size {
			t.Fatalf("%s: %+v counts as %d bytes", name, n.v, n.size)
		}
		if n.gap {
			gaps++
			continue
		}
		items++
		bytes += n.size
	}
	if items != l.items || gaps != l.gaps || bytes != l.bytes {
		t.Fatalf("%s has %d items, %d gaps, %d bytes; it counts %d, %d, %d",
			name, items, gaps, bytes, l.items, l.gaps, l.bytes)
	}
}

// checkQueue checks every invariant of q's fields.
func checkQueue(t *testing.T, q *Queue[item]) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	checkList(t, "taken", &q.taken)
	checkList(t, "ready", &q.ready)
	checkList(t, "buf", &q.buf)
	previous := uint64(0)
	for _, l := range []*list[item]{&q.taken, &q.ready} {
		for n := range l.all() {
			if n.seq < previous || n.seq > q.headEnd {
				t.Fatalf("head has number %d behind %d; it ends with %d", n.seq, previous, q.headEnd)
			}
			previous = n.seq
			if l == &q.ready && n.seq > q.durable {
				t.Fatalf("item %d is ready and not on disk, which has those up to %d", n.seq, q.durable)
			}
		}
	}
	switch {
	case q.headEnd > q.diskEnd:
		t.Fatalf("head ends with %d, buf begins behind %d", q.headEnd, q.diskEnd)
	case !q.spilling && q.headEnd != q.diskEnd:
		t.Fatalf("not spilling, but head ends with %d, and buf begins behind %d", q.headEnd, q.diskEnd)
	case q.spilling && q.headEnd < q.diskEnd && q.diskEnd > q.durable:
		t.Fatalf("items up to %d are neither in memory nor on disk, which has those up to %d", q.diskEnd, q.durable)
	case q.spilling && q.durable > q.diskEnd:
		t.Fatalf("disk has items up to %d, but buf begins behind %d", q.durable, q.diskEnd)
	case !q.spilling && len(q.receipts) > 0:
		t.Fatalf("not spilling, but %d items are not settled", len(q.receipts))
	case q.closed && len(q.waiters) > 0:
		t.Fatal("a push waits on a closed queue")
	case q.full && q.opts.Gap != nil && len(q.waiters) > 0:
		t.Fatal("a push waits under drop-oldest")
	}
	if items, _ := q.inMemory(); items > q.opts.MaxItems && !q.lifted {
		t.Fatalf("%d items in memory, at most %d", items, q.opts.MaxItems)
	}
	checkGaps(t, q)
	checkLinks(t, q)
}

// checkGaps checks that gap items are consecutive behind the oldest item, so all dropped items come directly behind it.
func checkGaps(t *testing.T, q *Queue[item]) {
	t.Helper()
	item, keys := false, map[int]bool{}
	for n := range q.buf.all() {
		if n == q.buf.oldest() {
			continue
		}
		if item = item || !n.gap; item && n.gap {
			t.Fatalf("gap item %+v is behind an item that was not dropped", n.v)
		}
		if n.gap && keys[n.v.Key] {
			t.Fatalf("two gap items of key %d can change", n.v.Key)
		}
		keys[n.v.Key] = n.gap
	}
}

// checkLinks checks the links between the items that can be merged.
func checkLinks(t *testing.T, q *Queue[item]) {
	t.Helper()
	if q.latest == nil {
		return
	}
	newest := map[string]*node[item]{}
	superseded, searched := 0, q.search != &q.buf.end
	for n := range q.buf.all() {
		if n == q.search {
			searched = false
		}
		key := itemKey(n.v)
		if n == q.buf.oldest() || key == "" {
			if n.older != nil || n.newer != nil {
				t.Fatalf("%+v can be merged", n.v)
			}
			continue
		}
		older := newest[key]
		if n.older != older || older != nil && older.newer != n {
			t.Fatalf("%+v and its successor %+v are not linked", older, n.v)
		}
		if older != nil {
			superseded++
			if searched || q.search == &q.buf.end {
				t.Fatalf("%+v has an older item, and will not be found", n.v)
			}
		}
		newest[key] = n
	}
	if searched {
		t.Fatal("the next item of the search does not wait")
	}
	for key, n := range newest {
		if q.latest[key] != n || n.newer != nil || len(q.latest) != len(newest) {
			t.Fatalf("latest of key %s is not its newest item; %d keys, want %d", key, len(q.latest), len(newest))
		}
	}
	if len(newest) == 0 && len(q.latest) > 0 {
		t.Fatalf("%d keys are kept", len(q.latest))
	}
	if q.full && len(q.waiters) > 0 && superseded > 0 {
		t.Fatal("a push waits although something can be merged")
	}
}

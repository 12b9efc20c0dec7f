package fifo

import (
	"runtime"
	"strconv"
	"testing"
	"weak"
)

// burst is larger than anything that an idle queue may keep.
const burst = 8192

func TestIdleQueueIsSmall(t *testing.T) {
	for _, policy := range []string{block, dropOldest, compact} {
		q := newFull(t, policy, burst, 0)
		c := &committer[item]{Queue: q}
		for id := range 2 * burst {
			_ = q.Push(ended(t), newItem(id, id%(burst/2), 1))
		}
		takeAll(t, q)
		if _, err := c.round(false); err != nil {
			t.Fatal(err)
		}
		c.setFull(c.cut)
		checkQueue(t, q)
		if q.receipts != nil || q.latest != nil || q.search != nil || q.spilling {
			t.Errorf("%s: %d receipts, %d keys are kept", policy, cap(q.receipts), len(q.latest))
		}
	}
}

// No object stays reachable through the queue once it was acknowledged, dropped or merged.
func TestQueueLetsGo(t *testing.T) {
	type object struct {
		id int
		_  [1 << 10]byte
	}
	for _, policy := range []string{block, dropOldest, compact} {
		var watched []weak.Pointer[object]
		items := newFull(t, policy, 8, 0)
		o := Options[*object]{
			MaxItems: 8, Path: items.opts.Path, Logger: items.opts.Logger, Size: func(*object) int64 { return 1 },
			Mark: func(*object) (string, string) { return "", "" }, Receipt: func(*object) *object { return nil },
			OnSettled: func([]*object) {},
		}
		switch policy {
		case dropOldest:
			o.Gap = func(gap, _ *object) (*object, bool) { return &object{}, gap == nil }
		case compact:
			o.Key = func(v *object) string { return strconv.Itoa(v.id % 2) }
			o.Merge, o.OnMerge = func(_, newer *object) *object { return newer }, func(*object) {}
		}
		q, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		q.begin()
		q.full = true
		for id := range 12 {
			v := &object{id: id}
			watched = append(watched, weak.Make(v))
			_ = q.Push(ended(t), v)
			if id == 9 { // links of another time
				(&committer[*object]{Queue: q}).setFull(false)
				q.full = true
			}
		}
		var buf []*object
		for q.Stats().Items > 1 {
			if buf, err = q.Take(t.Context(), buf, 1, 9); err != nil {
				t.Fatal(err)
			}
			q.Ack(len(buf))
		}
		if _, err := q.Take(ended(t), buf, 9, 9); err == nil { // clears buf
			t.Fatal("more to take")
		}
		last := q.buf.oldest().v
		runtime.GC()
		for i, w := range watched {
			if v := w.Value(); v != nil && v != last {
				t.Errorf("%s: object %d is still reachable", policy, i)
			}
		}
		runtime.KeepAlive(buf)
		runtime.KeepAlive(q)
	}
}

// In steady use an item costs one allocation, whether the queue is nearly empty, full, or merging.
func TestAllocations(t *testing.T) {
	const depth = 1000
	for _, policy := range []string{block, dropOldest, compact} {
		q := newFull(t, policy, depth, 0, func(o *Options[item]) {
			if policy == block {
				o.MaxItems = 2 * depth
			}
			o.Mark = func(item) (source, position string) { return "", "" }
			switch policy {
			case dropOldest:
				o.Gap = func(gap, _ item) (item, bool) { return gap, true }
			case compact:
				o.Key, o.Merge = func(v item) string { return v.Hist }, func(_, newer item) item { return newer }
			}
		})
		items := make([]item, 100)
		for i := range items {
			items[i] = newItem(i, i, 1)
		}
		for i := range depth {
			mustPush(t, q, items[i%100])
		}
		buf := make([]item, 100)
		rounds := 2 // the second finds the queue full
		if policy == block {
			rounds = 1
		}
		ctx := t.Context()
		allocs := testing.AllocsPerRun(100, func() {
			for range rounds {
				for _, v := range items {
					if err := q.Push(ctx, v); err != nil {
						t.Fatal(err)
					}
				}
			}
			buf, _ = q.Take(ctx, buf, 100, 1000)
			q.Ack(len(buf))
			q.receipts = q.receipts[:0]
		})
		if allocs > float64(100*rounds+2) { // and a few gap items
			t.Errorf("%s: %v allocations for %d items", policy, allocs, 100*rounds)
		}
		if s := q.Stats(); policy == dropOldest && s.Dropped == 0 || policy == compact && s.Merged == 0 {
			t.Errorf("%s: the queue was never full: %+v", policy, s)
		}
	}
}

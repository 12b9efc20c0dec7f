package fifo

import (
	"runtime"
	"testing"
	"weak"
)

// burst is larger than anything that an idle queue may keep.
const burst = 8192

func TestIdleQueueIsSmall(t *testing.T) {
	r := newTestRing(DropOldest, burst, 0)
	c := newTestCompacting(burst, 0)
	for _, q := range []Queue[item]{r, c} {
		for id := range burst {
			mustPush(t, q, newItem(id, id%(burst/2), 1))
		}
		take(t, q, burst, burst)
		q.Ack(burst)
	}
	for name, n := range map[string]int{
		"waiting": len(r.waiting.buf), "ring's taken": len(r.taken.buf), "compacting's taken": len(c.taken.buf),
	} {
		if n > keptDeque {
			t.Errorf("%s: %d slots after a burst", name, n)
		}
	}
	if len(c.free) > maxFree || c.spread > maxSpread {
		t.Errorf("%d free nodes, a map for %d keys after a burst", len(c.free), c.spread)
	}
	checkRing(t, r)
	checkCompacting(t, c)
}

// No object stays reachable through the queue once it was taken, dropped or merged.
func TestQueueLetsGo(t *testing.T) {
	type object [1 << 10]byte
	key := func(*object) int { return 1 }
	queues := map[string]Queue[*object]{
		"block": NewRing(RingOptions[*object]{MaxItems: 8}),
		"drop-oldest": NewRing(
			RingOptions[*object]{
				MaxItems: 2,
				Overflow: DropOldest,
				Gap:      func(g []*object, v *object) []*object { return append(g, v) },
			},
		),
		"compact": NewCompacting(CompactingOptions[*object, int]{
			MaxItems: 2, Key: key, Merge: func(_, newer *object) *object { return newer },
			Mergeable: func(*object) bool { return true }, OnMerge: func(*object) {},
		}),
	}
	for name, q := range queues {
		var watched []weak.Pointer[object]
		var buf []*object
		for range 4 {
			v := new(object)
			watched = append(watched, weak.Make(v))
			if err := q.Push(ended(t), v); err != nil {
				t.Fatal(err)
			}
		}
		buf, err := q.Take(t.Context(), buf, 9, 9)
		if err != nil {
			t.Fatal(err)
		}
		q.Ack(len(buf))
		if _, err := q.Take(ended(t), buf, 9, 9); err == nil { // clears buf
			t.Fatal("more to take")
		}
		runtime.GC()
		for i, w := range watched {
			if w.Value() != nil {
				t.Errorf("%s: object %d is still reachable", name, i)
			}
		}
		runtime.KeepAlive(buf)
		runtime.KeepAlive(q)
	}
}

// In steady use nothing is allocated, whether the queue is nearly empty, full, or merging.
func TestNoAllocation(t *testing.T) {
	const depth = 1000
	fold := func(gaps []*item, _ *item) []*item { return gaps }
	queues := map[string]Queue[*item]{
		"block":       NewRing(RingOptions[*item]{MaxItems: 2 * depth}),
		"drop-oldest": NewRing(RingOptions[*item]{MaxItems: depth, Overflow: DropOldest, Gap: fold}),
		"compact": NewCompacting(CompactingOptions[*item, int]{
			MaxItems: depth, Key: func(v *item) int { return v.Key }, Merge: func(_, newer *item) *item { return newer },
			Mergeable: func(*item) bool { return true }, OnMerge: func(*item) {},
		}),
	}
	for name, q := range queues {
		items := make([]*item, 100)
		for i := range items {
			items[i] = &item{Key: i}
		}
		for i := range depth {
			if err := q.Push(t.Context(), items[i%100]); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]*item, 100)
		rounds := 2 // the second finds the queue full
		if name == "block" {
			rounds = 1
		}
		allocs := testing.AllocsPerRun(100, func() {
			for range rounds {
				for _, v := range items {
					if err := q.Push(t.Context(), v); err != nil {
						t.Fatal(err)
					}
				}
			}
			buf, _ = q.Take(t.Context(), buf, 100, 0)
			q.Ack(len(buf))
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations for 100 items", name, allocs)
		}
		if s := q.Stats(); name == "drop-oldest" && s.Dropped == 0 || name == "compact" && s.Merged == 0 {
			t.Errorf("%s: the queue was never full: %+v", name, s)
		}
	}
}

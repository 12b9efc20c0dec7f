package fifo

import (
	"context"
	"errors"
	"math"
	"testing"
)

// In all cases item 0, of a key of its own, is the oldest, which Run may be writing.
func TestMerge(t *testing.T) {
	const c = control
	tests := []struct {
		name     string
		maxItems int
		maxBytes int64
		before   []int   // keys of the items that are pushed first
		taken    int     // how many of them are then taken
		push     []int   // keys of the items that are pushed then; ids go on
		sizes    []int64 // of all items, 1 where it ends
		want     []string
		refused  int // how many of the last pushes have to wait
	}{
		{"below its bounds nothing is merged", 9, 0, []int{1, 1, 1}, 0, []int{1}, nil, []string{"1", "2", "3", "4"}, 0},
		{
			"the older goes into the newer one's place",
			5,
			0,
			[]int{1, 2, 1, 3},
			0,
			[]int{4},
			nil,
			[]string{"2", "1+3", "4", "5"},
			0,
		},
		{"longest superseded first", 5, 0, []int{1, 2, 2, 1}, 0, []int{3}, nil, []string{"1", "2+3", "4", "5"}, 0},
		{"a chain is merged link by link", 4, 0, []int{1, 1, 1}, 0, []int{1, 1}, nil, []string{"1+2+3", "4", "5"}, 0},
		{"keys stay apart, and in order", 4, 0, []int{1, 1, 2}, 0, []int{2}, nil, []string{"1+2", "3", "4"}, 0},
		{"the oldest is never merged", 4, 0, []int{0, 0, 0}, 0, []int{0, 0}, nil, []string{"1+2+3", "4", "5"}, 0},
		{"taken is never merged", 4, 0, []int{1, 1, 1}, 2, []int{1}, nil, []string{"2", "3+4"}, 0},
		{"the new one takes up an earlier one", 4, 0, []int{1, 2, 3}, 0, []int{1}, nil, []string{"2", "3", "1+4"}, 0},
		{"distinct keys wait", 4, 0, []int{1, 2, 3}, 0, []int{4}, nil, []string{"1", "2", "3"}, 1},
		{"nothing but the oldest: waits", 2, 0, []int{1}, 1, []int{1}, nil, []string{"1"}, 1},
		{"control items are never merged", 4, 0, []int{c, c, 1}, 0, []int{1, c}, nil, []string{"1", "2", "3+4"}, 1},
		{"over a control item", 4, 0, []int{1, c, 1}, 0, []int{2}, nil, []string{"2", "1+3", "4"}, 0},
		{"one item forever", 2, 0, []int{1}, 0, []int{1, 1}, nil, []string{"1+2+3"}, 0},
		{
			"bytes: as many merges as needed",
			9,
			11,
			[]int{1, 1, 2, 2},
			0,
			[]int{3},
			[]int64{2, 2, 2, 2, 4},
			[]string{"1+2", "3+4", "5"},
			0,
		},
		{
			"bytes: no more merges than needed",
			9,
			11,
			[]int{1, 1, 2, 2},
			0,
			[]int{3},
			[]int64{2, 2, 2, 2, 3},
			[]string{"1+2", "3", "4", "5"},
			0,
		},
		{"bytes: merging is not enough", 9, 11, []int{1, 2}, 0, []int{3}, []int64{5, 5, 1}, []string{"1", "2"}, 1},
		{"bytes: grown too large to take up", 9, 11, []int{1, 2}, 0, []int{1}, []int64{4, 4, 9}, []string{"1", "2"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var gone int64
			q := newFull(t, compact, tt.maxItems, tt.maxBytes, func(o *Options[item]) {
				o.OnMerge = func(item) { gone++ }
			})
			mustPush(t, q, newItem(0, 0, 1))
			id, refused := 0, 0
			push := func(keys []int) {
				for _, key := range keys {
					size := int64(1)
					if id < len(tt.sizes) {
						size = tt.sizes[id]
					}
					id++
					switch err := q.Push(ended(t), newItem(id, key, size)); {
					case errors.Is(err, context.Canceled):
						refused++
					case err != nil:
						t.Fatal(err)
					case refused > 0:
						t.Fatal("taken up after one that had to wait")
					}
					checkQueue(t, q)
				}
			}
			push(tt.before)
			if tt.taken > 0 {
				take(t, q, tt.taken, math.MaxInt64)
			}
			push(tt.push)
			if refused != tt.refused {
				t.Errorf("%d pushes had to wait, want %d", refused, tt.refused)
			}
			s := q.Stats()
			if s.Merged != gone || s.Pushed != int64(1+id-refused) || int64(s.Items) != s.Pushed-s.Merged {
				t.Errorf("%d calls of OnMerge, %d pushes of which %d waited: %+v", gone, 1+id, refused, s)
			}
			waits := takeAll(t, q)
			if tt.taken == 0 {
				waits = waits[1:]
			}
			wantHist(t, "what waits", waits, tt.want...)
			if s := q.Stats(); s.Items != 0 || s.Bytes != 0 {
				t.Errorf("after all was acknowledged: %+v", s)
			}
		})
	}
}

// An object that is deleted and one that is created under its name have different keys (uids). Whatever is merged
// around them, the deletion comes first.
func TestMergeDeleteThenCreate(t *testing.T) {
	q := newFull(t, compact, 5, 0)
	mustPush(t, q, newItem(0, 0, 1),
		newItem(1, 1, 1), newItem(2, 1, 1), // uid 1: added, updated
		newItem(3, 1, 1),                   // uid 1: deleted
		newItem(4, 2, 1), newItem(5, 2, 1), // uid 2: added, updated
		newItem(6, 3, 1), newItem(7, 2, 1),
	)
	wantHist(t, "what waits", takeAll(t, q), "0", "1+2+3", "4+5", "6", "7")
}

// When the disk has room again, nothing is merged any more; and what is merged later is what waits then.
func TestMergeEndsWithTheFullDisk(t *testing.T) {
	q := newFull(t, compact, 6, 0)
	c := &committer[item]{Queue: q}
	for id := range 12 {
		mustPush(t, q, newItem(id, 1, 1))
		checkQueue(t, q)
	}
	merged := q.Stats().Merged
	c.setFull(false)
	if err := q.Push(ended(t), newItem(12, 1, 1)); err == nil || q.latest != nil || q.Stats().Merged != merged {
		t.Errorf("Push = %v, %+v", err, q.Stats())
	}
	got := take(t, q, 2, math.MaxInt64)
	q.Ack(2)
	mustPush(t, q, newItem(12, 1, 1), newItem(13, 1, 1))
	c.setFull(true)
	for id := 14; id < 20; id++ {
		mustPush(t, q, newItem(id, 1, 1))
		checkQueue(t, q)
	}
	var all string
	for _, v := range append(got, takeAll(t, q)...) {
		all += "+" + v.Hist
	}
	if want := "+0+1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17+18+19"; all != want {
		t.Errorf("taken: %s, want %s", all, want)
	}
}

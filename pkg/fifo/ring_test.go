package fifo

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDropOldest(t *testing.T) {
	tests := []struct {
		name     string
		maxItems int
		maxBytes int64
		before   []int64 // sizes of the items that are pushed first
		taken    int     // how many of them are then taken
		push     []int64 // sizes of the items that are pushed then; ids go on
		want     []string
		dropped  int64
	}{
		{"room", 3, 0, []int64{1, 1}, 0, []int64{1}, []string{"1", "2", "3"}, 0},
		{"oldest goes", 3, 0, []int64{1, 1, 1}, 0, []int64{1, 1}, []string{"gap 1+2", "3", "4", "5"}, 2},
		{"taken stays", 3, 0, []int64{1, 1, 1}, 1, []int64{1}, []string{"gap 2", "3", "4"}, 1},
		{"all taken: the new one goes", 2, 0, []int64{1, 1}, 2, []int64{1, 1}, []string{"gap 3+4"}, 2},
		{"bytes: several go for one", 9, 10, []int64{3, 3, 3}, 0, []int64{6}, []string{"gap 1+2", "3", "4"}, 2},
		{"bytes: taken ones leave no room", 9, 10, []int64{8, 1, 1}, 1, []int64{3}, []string{"gap 2+3+4"}, 3},
		{"oversize alone", 9, 10, []int64{3, 3}, 0, []int64{99}, []string{"gap 1+2", "3"}, 2},
		{"oversize goes in turn", 9, 10, []int64{99}, 0, []int64{1}, []string{"gap 1", "2"}, 1},
		{"oversize beside taken ones", 9, 10, []int64{1, 1}, 1, []int64{99, 1}, []string{"gap 2+3", "4"}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var dropped []int
			q := NewRing(RingOptions[item]{
				MaxItems: tt.maxItems, MaxBytes: tt.maxBytes, Size: itemSize, Overflow: DropOldest,
				Gap: func(gaps []item, v item) []item {
					dropped = append(dropped, v.ID)
					return foldItem(gaps, v)
				},
			})
			id := 0
			push := func(sizes []int64) {
				for _, size := range sizes {
					id++
					mustPush(t, q, newItem(id, 0, size))
				}
			}
			push(tt.before)
			if tt.taken > 0 {
				take(t, q, tt.taken, math.MaxInt64)
			}
			push(tt.push)
			checkRing(t, q.(*Ring[item]))
			if s := q.Stats(); s.Dropped != tt.dropped || s.Taken != tt.taken || int64(len(dropped)) != tt.dropped {
				t.Errorf("stats %+v and %d calls of Gap, want %d dropped", s, len(dropped), tt.dropped)
			}
			for i := 1; i < len(dropped); i++ {
				if dropped[i] < dropped[i-1] {
					t.Errorf("dropped out of order: %v", dropped)
				}
			}
			got := take(t, q, 100, math.MaxInt64)
			wantHist(t, "what waits", got, tt.want...)
			q.Ack(tt.taken + len(got))
			if s := q.Stats(); s.Items != 0 || s.Bytes != 0 || s.Acked != int64(tt.taken+len(got)) {
				t.Errorf("after all was acknowledged: %+v", s)
			}
		})
	}
}

// Gap items are outside the bounds, wait in front, and once taken are never changed.
func TestGapsAreTakenAndStartAnew(t *testing.T) {
	q := newTestRing(DropOldest, 2, 0)
	for id := range 5 {
		mustPush(t, q, newItem(id, id%3, 1))
	}
	if s := q.Stats(); s.Items != 5 || s.Bytes != 2 {
		t.Errorf("three gaps and two items: %+v", s)
	}
	array := q.gaps
	first := take(t, q, 2, math.MaxInt64)
	if array[0] != (item{}) || array[1] != (item{}) {
		t.Error("the queue still holds gap items that were taken")
	}
	wantHist(t, "first batch", first, "gap 0", "gap 1")
	mustPush(t, q, newItem(5, 0, 1)) // drops 3, of the key whose gap is taken; key 2's gap still waits
	checkRing(t, q)
	wantHist(t, "first batch, later", first, "gap 0", "gap 1")
	second := take(t, q, 3, math.MaxInt64)
	wantHist(t, "second batch", second, "gap 2", "gap 3", "4")
	q.Ack(4)
	if s := q.Stats(); s.Items != 2 || s.Taken != 1 || s.Bytes != 2 {
		t.Errorf("one item taken, one waiting: %+v", s)
	}
	wantHist(t, "third batch", take(t, q, 3, math.MaxInt64), "5")
	q.Ack(2)
	checkRing(t, q)
}

func TestDropOldestWithoutGap(t *testing.T) {
	q := NewRing(RingOptions[int]{
		MaxItems: 1, Overflow: DropOldest, Gap: func(gaps []int, _ int) []int { return gaps },
	})
	for i := range 3 {
		if err := q.Push(ended(t), i); err != nil {
			t.Fatal(err)
		}
	}
	got, err := q.Take(t.Context(), nil, 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTakeBounds(t *testing.T) {
	tests := []struct {
		name     string
		sizes    []int64
		limit    int
		maxBytes int64
		want     int
	}{
		{"items", []int64{1, 1, 1}, 2, 99, 2},
		{"bytes exactly", []int64{4, 6, 1}, 9, 10, 2},
		{"first is larger", []int64{11, 0}, 9, 10, 1},
		{"no bytes", []int64{0, 0, 1}, 9, 0, 2},
		{"limit below one", []int64{1, 1}, 0, 99, 1},
		{"limit far below one", []int64{1, 1}, -5, 99, 1},
		{"all", []int64{5, 5, 5}, 9, math.MaxInt64, 3},
		{"huge sizes", []int64{math.MaxInt64 / 2, math.MaxInt64 / 2}, 9, math.MaxInt64, 2},
		{"a size below 0 counts as 0", []int64{-7, 1}, 9, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, q := range map[string]Queue[item]{
				"ring": newTestRing(Block, 9, 0), "compacting": newTestCompacting(9, 0),
			} {
				for id, size := range tt.sizes {
					mustPush(t, q, newItem(id, id, size))
				}
				if got := take(t, q, tt.limit, tt.maxBytes); len(got) != tt.want {
					t.Errorf("%s: took %d items, want %d", name, len(got), tt.want)
				}
			}
		})
	}
}

// Take uses the caller's buffer and does not let it pin the last batch.
func TestTakeBuffer(t *testing.T) {
	q := newTestRing(Block, 9, 0)
	mustPush(t, q, newItem(1, 0, 1))
	buf := make([]item, 3, 8)
	buf[2].ID = 77
	got, err := q.Take(t.Context(), buf, 9, 9)
	if err != nil || len(got) != 1 || &got[0] != &buf[0] {
		t.Fatalf("Take = %v, %v; want one item in the caller's buffer", got, err)
	}
	if buf[2].ID != 0 {
		t.Error("the old batch is still in the buffer")
	}
}

func TestEndedContext(t *testing.T) {
	for name, q := range map[string]Queue[item]{"ring": newTestRing(Block, 1, 0), "compacting": newTestCompacting(1, 0)} {
		mustPush(t, q, newItem(1, 1, 1)) // has room, so does not look
		if err := q.Push(ended(t), newItem(2, 2, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Push on a full queue: %v", name, err)
		}
		if got, err := q.Take(ended(t), nil, 1, 1); !errors.Is(err, context.Canceled) || len(got) > 0 {
			t.Errorf("%s: Take = %v, %v", name, got, err)
		}
		if s := q.Stats(); s.Items != 1 || s.Taken != 0 || s.Pushed != 1 || s.Blocked != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestWrongUsePanics(t *testing.T) {
	tests := map[string]func(){
		"ring without bound":       func() { NewRing(RingOptions[int]{}) },
		"ring with negative bytes": func() { NewRing(RingOptions[int]{MaxItems: 1, MaxBytes: -1}) },
		"unknown policy":           func() { NewRing(RingOptions[int]{MaxItems: 1, Overflow: 7}) },
		"compacting without bound": func() { NewCompacting(CompactingOptions[int, int]{}) },
		"ack of nothing":           func() { newTestRing(Block, 1, 0).Ack(1) },
		"ack of a negative":        func() { newTestRing(Block, 1, 0).Ack(-1) },
		"ack of waiting": func() {
			q := newTestRing(Block, 2, 0)
			mustPush(t, q, newItem(1, 1, 1))
			q.Ack(1)
		},
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

package fifo

import (
	"context"
	"errors"
	"math"
	"testing"
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
		{"room", 4, 0, []int64{1, 1}, 0, []int64{1}, []string{"1", "2", "3"}, 0},
		{
			"the oldest goes that Run does not write", 4, 0,
			[]int64{1, 1, 1, 1},
			0,
			[]int64{1, 1},
			[]string{"1", "gap 2+3", "4", "5", "6"},
			2,
		},
		{"taken stays", 4, 0, []int64{1, 1, 1, 1}, 1, []int64{1}, []string{"2", "gap 3", "4", "5"}, 1},
		{"nothing can go: the new one goes", 2, 0, []int64{1, 1}, 1, []int64{1, 1}, []string{"2", "gap 3+4"}, 2},
		{"bytes: several go for one", 9, 10, []int64{3, 3, 3}, 0, []int64{6}, []string{"1", "gap 2+3", "4"}, 2},
		{"bytes: taken ones leave no room", 9, 10, []int64{4, 1, 5}, 1, []int64{6}, []string{"2", "gap 3+4"}, 2},
		{"oversize alone", 9, 10, nil, 0, []int64{99}, []string{"1"}, 0},
		{"oversize", 9, 10, []int64{3, 3}, 0, []int64{99}, []string{"1", "gap 2+3"}, 2},
		{"behind an oversize", 9, 10, []int64{99}, 0, []int64{1}, []string{"1", "gap 2"}, 1},
		{"oversize beside taken ones", 9, 10, []int64{4, 1}, 1, []int64{9, 1}, []string{"2", "gap 3", "4"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dropped := map[int]bool{}
			last := 0
			q := newFull(t, dropOldest, tt.maxItems, tt.maxBytes, func(o *Options[item]) {
				o.Gap = func(gap, v item) (item, bool) {
					if v.ID < last {
						t.Errorf("%d is dropped after %d", v.ID, last)
					}
					last, dropped[v.ID] = v.ID, true
					return foldItem(gap, v)
				}
			})
			id := 0
			push := func(sizes []int64) {
				for _, size := range sizes {
					id++
					mustPush(t, q, newItem(id, 0, size))
					checkQueue(t, q)
				}
			}
			push(tt.before)
			if tt.taken > 0 {
				take(t, q, tt.taken, math.MaxInt64)
			}
			push(tt.push)
			s := q.Stats()
			if s.Dropped != tt.dropped || s.Taken != tt.taken || int64(len(dropped)) != tt.dropped || s.Blocked > 0 {
				t.Errorf("stats %+v, and Gap was called with %v, want %d dropped", s, dropped, tt.dropped)
			}
			got := takeAll(t, q)
			wantHist(t, "what waits", got, tt.want...)
			if s := q.Stats(); s.Items != 0 || s.Bytes != 0 || s.Acked != int64(tt.taken+len(got)) {
				t.Errorf("after all was acknowledged: %+v", s)
			}
		})
	}
}

// The bounds do not apply to gap items. Gap items that were taken, or that may be being written to disk, never change.
func TestGapsAreTakenAndStartAnew(t *testing.T) {
	q := newFull(t, dropOldest, 4, 0)
	for id := range 7 {
		mustPush(t, q, newItem(id, id%3, 1))
	}
	if s := q.Stats(); s.Items != 7 || s.Bytes != 4 {
		t.Errorf("three gaps and four items: %+v", s)
	}
	first := take(t, q, 3, math.MaxInt64)
	wantHist(t, "first batch", first, "0", "gap 1", "gap 2")
	mustPush(t, q, newItem(7, 0, 1), newItem(8, 0, 1)) // drops 4 and 5; the gap of 3 is the oldest item
	checkQueue(t, q)
	wantHist(t, "first batch, later", first, "0", "gap 1", "gap 2")
	if s := q.Stats(); s.Items != 9 || s.Taken != 3 || s.Bytes != 4 {
		t.Errorf("one item and two gaps taken, three and three waiting: %+v", s)
	}
	q.Ack(3)
	wantHist(t, "second batch", takeAll(t, q), "gap 3", "gap 4", "gap 5", "6", "7", "8")
	checkQueue(t, q)
}

// The order of dropped items is also kept across several gap items.
func TestDropsOfASourceAreInOneGap(t *testing.T) {
	q := newFull(t, dropOldest, 4, 0)
	for id := range 100 {
		mustPush(t, q, newItem(id, id%2, 1))
		checkQueue(t, q)
	}
	if s := q.Stats(); s.Items != 4+2 || s.Dropped != 96 {
		t.Errorf("%+v", s)
	}
}

func TestDropOldestWithoutGap(t *testing.T) {
	q := newFull(t, dropOldest, 2, 0, func(o *Options[item]) {
		o.Gap = func(item, item) (item, bool) { return item{}, false }
	})
	mustPush(t, q, newItem(1, 0, 1), newItem(2, 0, 1), newItem(3, 0, 1), newItem(4, 0, 1))
	wantHist(t, "what is left", takeAll(t, q), "1", "4")
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
			for _, policy := range []string{block, dropOldest, compact} {
				q := newFull(t, policy, 18, 0)
				for id, size := range tt.sizes {
					mustPush(t, q, newItem(id, id, size))
				}
				if got := take(t, q, tt.limit, tt.maxBytes); len(got) != tt.want {
					t.Errorf("%s: took %d items, want %d", policy, len(got), tt.want)
				}
			}
		})
	}
}

// Take uses the caller's buffer and does not keep references to the last batch in it.
func TestTakeBuffer(t *testing.T) {
	q := newFull(t, block, 9, 0)
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
	for _, policy := range []string{block, compact} {
		q := newFull(t, policy, 2, 0)
		mustPush(t, q, newItem(1, 1, 1), newItem(2, 2, 1)) // has room, so does not look
		if err := q.Push(ended(t), newItem(3, 3, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Push on a full queue: %v", policy, err)
		}
		if got, err := q.Take(ended(t), nil, 1, 1); !errors.Is(err, context.Canceled) || len(got) > 0 {
			t.Errorf("%s: Take = %v, %v", policy, got, err)
		}
		if s := q.Stats(); s.Items != 2 || s.Taken != 0 || s.Pushed != 2 || s.Blocked != 1 {
			t.Errorf("%s: %+v", policy, s)
		}
	}
}

func TestWrongUsePanics(t *testing.T) {
	tests := map[string]func(){
		"too small a bound": func() { _, _ = New(Options[item]{MaxItems: 1}) },
		"negative bytes":    func() { _, _ = New(Options[item]{MaxItems: 2, MaxBytes: -1}) },
		"ack of nothing":    func() { newFull(t, block, 2, 0).Ack(1) },
		"ack of a negative": func() { newFull(t, block, 2, 0).Ack(-1) },
		"ack of waiting": func() {
			q := newFull(t, block, 2, 0)
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

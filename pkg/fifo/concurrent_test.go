package fifo

import (
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	producers   = 8
	perProducer = 4000
)

// stream pushes perProducer items from each of several producers at once, with keys by keyOf, and gives all that one
// consumer took, in order. It takes and acknowledges batches of changing sizes, at times with two batches taken.
func stream(t *testing.T, q *Queue[item], keyOf func(producer, i int) int) []item {
	t.Helper()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range perProducer {
				if err := q.Push(t.Context(), newItem(p*perProducer+i, keyOf(p, i), int64(i%40))); err != nil {
					t.Errorf("Push: %v", err)
					return
				}
			}
		})
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		wg.Wait()
		q.Close()
	}()
	var all, buf []item
	taken := 0
	for round := 0; ; round++ {
		var err error
		buf, err = q.Take(t.Context(), buf, 1+round%13, int64(round%200))
		if errors.Is(err, ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buf...)
		if taken += len(buf); round%2 == 0 || taken > 5 {
			q.Ack(taken)
			taken = 0
		}
		if round%64 == 0 {
			runtime.Gosched() // lets producers overflow the queue
		}
	}
	q.Ack(taken)
	<-closed
	s := q.Stats()
	if s.Pushed != producers*perProducer || s.Items != 0 || s.Bytes != 0 || s.Acked != int64(len(all)) {
		t.Errorf("%d items taken, at the end: %+v", len(all), s)
	}
	return all
}

// ids returns the ids of all items that were combined into v, oldest first.
func ids(t *testing.T, v item) []int {
	t.Helper()
	var ids []int
	for s := range strings.SplitSeq(v.Hist, "+") {
		id, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// If pushes wait, nothing is lost, and the order of each producer is kept.
func TestConcurrentBlock(t *testing.T) {
	q := newFull(t, block, 64, 1000)
	next := [producers]int{}
	for _, v := range stream(t, q, func(p, _ int) int { return p }) {
		if want := v.Key*perProducer + next[v.Key]; v.ID != want {
			t.Fatalf("item %d of producer %d, want %d", v.ID, v.Key, want)
		}
		next[v.Key]++
	}
	for p, n := range next {
		if n != perProducer {
			t.Errorf("%d items of producer %d, want %d", n, p, perProducer)
		}
	}
	checkQueue(t, q)
}

// Under DropOldest each item is given, or is in exactly one gap item, in each producer's order: a gap stands where the
// hole is.
func TestConcurrentDropOldest(t *testing.T) {
	q := newFull(t, dropOldest, 64, 1000)
	next := [producers]int{}
	dropped := 0
	for _, v := range stream(t, q, func(p, _ int) int { return p }) {
		for _, id := range ids(t, v) {
			if want := v.Key*perProducer + next[v.Key]; id != want {
				t.Fatalf("item %d (gap: %v) of producer %d, want %d", id, v.Gap, v.Key, want)
			}
			next[v.Key]++
			if v.Gap {
				dropped++
			}
		}
	}
	for p, n := range next {
		if n != perProducer {
			t.Errorf("%d items of producer %d, want %d", n, p, perProducer)
		}
	}
	if s := q.Stats(); dropped == 0 || s.Dropped != int64(dropped) || s.Blocked != 0 {
		t.Errorf("%d items in gaps: %+v", dropped, s)
	}
	checkQueue(t, q)
}

// Under compact each item is given or merged into a later one of its key, in order, and what is given last is the final
// state: the deletion, where each key ends with one.
func TestConcurrentCompacting(t *testing.T) {
	const keys = 40 // of each producer
	q := newFull(t, compact, 64, math.MaxInt64/2)
	last := map[int]int{}
	count, merged := 0, 0
	for _, v := range stream(t, q, func(p, i int) int { return p*keys + i%keys }) {
		in := ids(t, v)
		for _, id := range in {
			if before, ok := last[v.Key]; ok && id != before+keys || !ok && id != v.Key/keys*perProducer+v.Key%keys {
				t.Fatalf("key %d: item %d after %d", v.Key, id, before)
			}
			last[v.Key] = id
			count++
		}
		if v.ID != in[len(in)-1] {
			t.Fatalf("%+v is not the newest of its items", v)
		}
		merged += len(in) - 1
	}
	if count != producers*perProducer {
		t.Errorf("%d items, want %d", count, producers*perProducer)
	}
	for key, id := range last {
		if want := key/keys*perProducer + perProducer - keys + key%keys; id != want {
			t.Errorf("the final item of key %d is %d, want %d", key, id, want)
		}
	}
	if s := q.Stats(); merged == 0 || s.Merged != int64(merged) {
		t.Errorf("%d items merged: %+v", merged, s)
	}
	checkQueue(t, q)
}

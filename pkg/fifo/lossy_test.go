package fifo

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lossyTest is a Lossy queue with what it settled.
type lossyTest struct {
	*Lossy[item]
	*spillTest
	stopRun context.CancelFunc
	ran     chan error
}

// openLossy makes a queue of a front for four items, a Spill for eight, and little room on disk, and runs it.
func openLossy(t *testing.T, path string, front Queue[item], diskBytes int64) *lossyTest {
	t.Helper()
	s := openSpill(t, path, func(o *SpillOptions[item]) { o.MaxDiskBytes = diskBytes })
	q := &lossyTest{Lossy: NewLossy(front, s.Spill), spillTest: s, ran: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	q.stopRun = cancel
	go func() { q.ran <- q.Lossy.Run(ctx) }()
	t.Cleanup(cancel)
	return q
}

func (q *lossyTest) pushAll(from, to, keys int) {
	q.t.Helper()
	for id := from; id <= to; id++ {
		if err := q.Lossy.Push(q.t.Context(), newItem(id, id%keys, 1)); err != nil {
			q.t.Fatal(err)
		}
	}
}

// endRun closes the queue, ends Run and gives its error.
func (q *lossyTest) endRun() error {
	q.Lossy.Close()
	q.stopRun()
	return <-q.ran
}

// drained gives what a queue of its own finds in the file.
func drained(t *testing.T, path string) (items []item) {
	t.Helper()
	s := openSpill(t, path, nil).start()
	for s.Stats().Items > 0 {
		batch := take(t, s, 100, 1<<30)
		items = append(items, batch...)
		s.Ack(len(batch))
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	return items
}

func idsOf(items []item) (ids []int) {
	for _, v := range items {
		if !v.Gap {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// While there is room on disk no policy applies, however fast the pushes come.
func TestLossyGivesUpNothingBeforeTheDiskIsFull(t *testing.T) {
	for name, front := range map[string]func() Queue[item]{
		"drop-oldest": func() Queue[item] { return newTestRing(DropOldest, 4, 0) },
		"compact":     func() Queue[item] { return newTestCompacting(4, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				q := openLossy(t, path, front(), 1<<20)
				q.pushAll(1, 500, 3)
				passTime(time.Second)
				if s := q.Lossy.Stats(); s.Items != 500 || s.Dropped+s.Merged > 0 {
					t.Errorf("%+v", s)
				}
				var got []item
				for len(got) < 400 {
					batch, err := q.Lossy.Take(t.Context(), nil, 50, 1<<30)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, batch...)
					q.Lossy.Ack(len(batch))
				}
				if err := q.endRun(); err != nil {
					t.Fatal(err)
				}
				got = append(got, drained(t, path)...)
				q.wantIDs("taken", idsOf(got), 1, 500)
				q.wantIDs("settled", q.settledIDs(), 1, 500)
			})
		})
	}
}

// When memory and disk are full the oldest items of the front go, and gap items take their place. At the end
// everything that is left goes to disk, in order.
func TestLossyDropsWhenTheDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		q := openLossy(t, path, newTestRing(DropOldest, 4, 0), 1000)
		const n = 100
		q.pushAll(1, n, 1)
		passTime(time.Minute)
		s := q.Lossy.Stats()
		if gaps := s.Items - (n - int(s.Dropped)); s.Dropped == 0 || s.Pushed != n || gaps < 1 {
			t.Errorf("%+v", s)
		}
		if err := q.endRun(); err != nil {
			t.Fatal(err)
		}
		got := drained(t, path)
		var order, want []string
		for _, v := range got {
			order = append(order, v.Hist)
		}
		for id := range n {
			want = append(want, strconv.Itoa(id+1))
		}
		if got, want := strings.Join(order, "+"), strings.Join(want, "+"); got != want {
			t.Errorf("items and gaps stand for %s, want %s", got, want)
		}
		if len(idsOf(got)) != n-int(s.Dropped) {
			t.Errorf("%d items are there, %d were dropped", len(idsOf(got)), s.Dropped)
		}
		if err := q.Lossy.Push(t.Context(), newItem(1, 1, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("Push after the end: %v", err)
		}
	})
}

// What can be merged is merged, what can't makes pushes wait, and both end when there is room on disk.
func TestLossyMergesWhenTheDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		q := openLossy(t, path, newTestCompacting(4, 0), 1000)
		q.pushAll(1, 100, 2)
		passTime(time.Minute)
		before := q.Lossy.Stats()
		if before.Merged == 0 {
			t.Errorf("nothing is merged: %+v", before)
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			for id := 101; id <= 140; id++ {
				if err := q.Lossy.Push(t.Context(), newItem(id, id, 1)); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		if q.Lossy.Stats().Pushed == 140 {
			t.Error("items with keys of their own are taken up although all is full")
		}
		var got []item
		for q.Lossy.Stats().Items > 0 {
			batch, err := q.Lossy.Take(t.Context(), nil, 3, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, batch...)
			q.Lossy.Ack(len(batch))
			synctest.Wait()
		}
		<-done
		if s := q.Lossy.Stats(); s.Pushed != 140 || int(s.Merged) != 140-len(got) {
			t.Errorf("%+v, %d taken", s, len(got))
		}
		if err := q.endRun(); err != nil {
			t.Fatal(err)
		}
		if last := idsOf(got)[len(got)-1]; last != 140 || !slices.IsSorted(idsOf(got)) {
			t.Errorf("taken: %v", idsOf(got))
		}
	})
}

// What is on its way to a disk that turns out to be full leaves room in the front: its policy has something to work on.
func TestLossyMovesAPartAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *SpillOptions[item]) { o.MaxDiskBytes = 1 })
		q := &lossyTest{Lossy: NewLossy(newTestCompacting(4, 0), s.Spill), spillTest: s, ran: make(chan error, 1)}
		push := func(queue Queue[item], id, key int) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return queue.Push(ctx, newItem(id, key, 1))
		}
		id := 1
		for push(s.Spill, id, id) == nil { // until its memory is full, which nobody writes to disk yet
			id++
		}
		for n := range 4 {
			if err := push(q.Lossy, id+n, n%2); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		q.stopRun = cancel
		go func() { q.ran <- q.Lossy.Run(ctx) }()
		for n := 4; n < 100; n++ {
			if err := push(q.Lossy, id+n, n%2); err != nil {
				t.Fatalf("item %d waits: %v, %+v", n, err, q.Lossy.Stats())
			}
		}
		if err := q.endRun(); err != nil {
			t.Fatal(err)
		}
	})
}

// A closed queue is drained to its end.
func TestLossyDrains(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		q := openLossy(t, path, newTestRing(DropOldest, 4, 0), 0)
		q.pushAll(1, 3, 1)
		q.Lossy.Close()
		var got []item
		for {
			batch, err := q.Lossy.Take(t.Context(), nil, 10, 10)
			if errors.Is(err, ErrClosed) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, batch...)
			q.Lossy.Ack(len(batch))
		}
		q.wantIDs("taken", idsOf(got), 1, 3)
		if err := q.endRun(); err != nil || fileExists(t, path) {
			t.Errorf("Run = %v; there is a file: %t", err, fileExists(t, path))
		}
	})
}

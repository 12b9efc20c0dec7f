package fifo

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// openPolicy opens a queue with a policy and this much room on disk, and runs it.
func openPolicy(t *testing.T, path, policy string, diskBytes int64) *spillTest {
	t.Helper()
	return openSpill(t, path, func(o *Options[item]) {
		o.MaxDiskBytes = diskBytes
		setPolicy(o, policy)
	}).start()
}

func (s *spillTest) pushKeys(from, to, keys int) {
	s.t.Helper()
	for id := from; id <= to; id++ {
		if err := s.Push(s.t.Context(), newItem(id, id%keys, 1)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// drained returns the items that another process finds in the files.
func drained(t *testing.T, path string) (items []item) {
	t.Helper()
	s := openSpill(t, path, nil).start()
	items = takeAll(t, s.Queue)
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

// While there is room on disk, the policy does not apply, however fast items are pushed.
func TestNoPolicyBeforeTheDiskIsFull(t *testing.T) {
	for _, policy := range []string{dropOldest, compact} {
		t.Run(policy, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				s := openPolicy(t, path, policy, 1<<20)
				s.pushKeys(1, 500, 3)
				passTime(time.Second)
				if st := s.Stats(); st.Items != 500 || st.Dropped+st.Merged > 0 {
					t.Errorf("%+v", st)
				}
				var got []item
				for len(got) < 400 {
					batch := take(t, s, 50, 1<<30)
					got = append(got, batch...)
					s.Ack(len(batch))
				}
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				got = append(got, drained(t, path)...)
				s.wantIDs("taken", idsOf(got), 1, 500)
				s.wantIDs("settled", s.settledIDs(), 1, 500)
			})
		})
	}
}

// When memory and disk are full, the oldest items in memory are dropped, and gap items replace them. At the end, all
// remaining items are written to disk, in order.
func TestDropsWhenTheDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openPolicy(t, path, dropOldest, 1000)
		const n = 100
		s.pushKeys(1, n, 1)
		passTime(time.Minute)
		st := s.Stats()
		if gaps := st.Items - (n - int(st.Dropped)); st.Dropped == 0 || st.Pushed != n || gaps < 1 {
			t.Errorf("%+v", st)
		}
		if err := s.end(); err != nil {
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
		if len(idsOf(got)) != n-int(st.Dropped) {
			t.Errorf("%d items are there, %d were dropped", len(idsOf(got)), st.Dropped)
		}
		if err := s.Push(t.Context(), newItem(1, 1, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("Push after the end: %v", err)
		}
	})
}

// Everything is settled when the queue is empty, although Last returned a higher number before the policy dropped items.
func TestSettledAfterDrops(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) {
			o.MaxBytes, o.MaxDiskBytes = 8, 1000
			setPolicy(o, dropOldest)
		}).start()
		s.pushKeys(1, 100, 1)
		passTime(time.Minute)
		last := s.Last()
		if err := s.Push(t.Context(), newItem(101, 0, 3)); err != nil {
			t.Fatal(err)
		}
		if s.Last() >= last || s.IsSettled(last) {
			t.Fatalf("last item %d, before %d; settled: %t", s.Last(), last, s.IsSettled(last))
		}
		takeAll(t, s.Queue)
		if !s.IsSettled(last) {
			t.Error("not settled, although the queue is empty")
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Items that can be merged are merged, and otherwise pushes wait. Both end when there is room on disk.
func TestMergesWhenTheDiskIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openPolicy(t, path, compact, 1000)
		s.pushKeys(1, 100, 2)
		passTime(time.Minute)
		before := s.Stats()
		if before.Merged == 0 {
			t.Errorf("nothing is merged: %+v", before)
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			for id := 101; id <= 140; id++ {
				if err := s.Push(t.Context(), newItem(id, id, 1)); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		if s.Stats().Pushed == 140 {
			t.Error("items with keys of their own are taken up although all is full")
		}
		var got []item
		for s.Stats().Items > 0 {
			batch := take(t, s, 3, 1<<30)
			got = append(got, batch...)
			s.Ack(len(batch))
			synctest.Wait()
		}
		<-done
		if st := s.Stats(); st.Pushed != 140 || int(st.Merged) != 140-len(got) {
			t.Errorf("%+v, %d taken", st, len(got))
		}
		if last := idsOf(got)[len(got)-1]; last != 140 || !slices.IsSorted(idsOf(got)) {
			t.Errorf("taken: %v", idsOf(got))
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// A disk that fails is treated like a full disk: the policies use all of memory before they drop or merge an item, no
// push waits for the disk, and the remaining items are written when the disk can be written again.
func TestPoliciesWhileTheDiskFails(t *testing.T) {
	for _, policy := range []string{dropOldest, compact} {
		t.Run(policy, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				s := openSpill(t, path, func(o *Options[item]) { setPolicy(o, policy) })
				var works atomic.Bool
				s.encode = func(item) error {
					if !works.Load() {
						return errors.New("no disk")
					}
					return nil
				}
				s.start()
				s.pushKeys(1, 8, 2)
				if st := s.Stats(); st.Dropped+st.Merged > 0 {
					t.Errorf("given up before memory is full: %+v", st)
				}
				began := time.Now()
				for id := 9; id <= 100; id++ {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := s.Push(ctx, newItem(id, id%2, 1)); err != nil {
						t.Fatalf("Push(%d) = %v, %+v", id, err, s.Stats())
					}
					cancel()
					checkQueue(t, s.Queue)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("pushes waited for %s", took)
				}
				if st := s.Stats(); st.Dropped+st.Merged == 0 || st.Bytes != 8 {
					t.Errorf("%+v", st)
				}
				works.Store(true)
				passTime(time.Minute)
				before := s.Stats()
				s.pushKeys(101, 200, 2)
				passTime(time.Second)
				if st := s.Stats(); st.Dropped != before.Dropped || st.Merged != before.Merged || s.settledIDs() == nil {
					t.Errorf("given up although the disk can be written: %+v, before %+v", st, before)
				}
				var ids []int
				for _, v := range takeAll(t, s.Queue) {
					for id := range strings.SplitSeq(v.Hist, "+") {
						n, _ := strconv.Atoi(id)
						ids = append(ids, n)
					}
				}
				slices.Sort(ids)
				s.wantIDs("what the items stand for", ids, 1, 200)
			})
		})
	}
}

// Persist waits for what there was. What the policy has given up since then need not be written.
func TestPersistAndDrop(t *testing.T) {
	q := newFull(t, dropOldest, 8, 100)
	c := &committer[item]{Queue: q}
	for id := range 8 {
		mustPush(t, q, newItem(id, 0, 10))
	}
	q.Persist()
	mustPush(t, q, newItem(8, 0, 80)) // six are dropped for it
	wantHist(t, "what is left", takeAll(t, q), "0", "gap 1+2+3+4+5+6", "7", "8")
	if _, err := c.round(false); err != nil || q.spilling {
		t.Errorf("still spilling, although nothing waits: %v", err)
	}
}

// A closed queue is drained to its end.
func TestPolicyDrains(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openPolicy(t, path, dropOldest, 0)
		s.pushKeys(1, 3, 1)
		s.Close()
		var got []item
		for {
			batch, err := s.Take(t.Context(), nil, 10, 10)
			if errors.Is(err, ErrClosed) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, batch...)
			s.Ack(len(batch))
		}
		s.wantIDs("taken", idsOf(got), 1, 3)
		if err := s.end(); err != nil || fileExists(t, path) {
			t.Errorf("Run = %v; there is a file: %t", err, fileExists(t, path))
		}
	})
}

package fifo

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bothQueues runs f on a queue of each policy that can make a push wait, with room for maxItems items. Half of them can
// be taken at a time.
func bothQueues(t *testing.T, maxItems int, maxBytes int64, f func(t *testing.T, q *Queue[item])) {
	for _, policy := range []string{block, compact} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newFull(t, policy, maxItems, maxBytes)) })
		})
	}
}

// pushing is a push in its own goroutine.
type pushing struct {
	done   bool // valid after synctest.Wait
	err    error
	cancel context.CancelFunc
}

func startPush(t *testing.T, q *Queue[item], v item) *pushing {
	ctx, cancel := context.WithCancel(t.Context())
	p := &pushing{cancel: cancel}
	go func() {
		defer cancel()
		p.err = q.Push(ctx, v)
		p.done = true
	}()
	synctest.Wait()
	return p
}

func TestPushWaitsForAck(t *testing.T) {
	bothQueues(t, 2, 0, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(1, 1, 1), newItem(2, 2, 1))
		p := startPush(t, q, newItem(3, 3, 1))
		if p.done {
			t.Fatal("Push on a full queue returned")
		}
		batch := take(t, q, 9, 9)
		synctest.Wait()
		if p.done {
			t.Fatal("Push returned although what was taken is not acknowledged")
		}
		q.Ack(1)
		synctest.Wait()
		if !p.done || p.err != nil {
			t.Fatalf("Push after Ack: done %v, %v", p.done, p.err)
		}
		wantHist(t, "the batch", batch, "1")
		wantHist(t, "the rest", takeAll(t, q), "2", "3")
		if s := q.Stats(); s.Blocked != 1 {
			t.Errorf("%+v, want one push that waited", s)
		}
	})
}

func TestWaitingPushesAreServedInOrder(t *testing.T) {
	const producers = 300
	bothQueues(t, 2, 0, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(0, 0, 1), newItem(1, 1, 1))
		var waits []*pushing
		for id := range producers {
			waits = append(waits, startPush(t, q, newItem(2+id, 2+id, 1)))
		}
		for id := range producers + 2 {
			if got := take(t, q, 9, 9); len(got) != 1 || got[0].ID != id {
				t.Fatalf("took %v, want item %d", got, id)
			}
			q.Ack(1)
			synctest.Wait()
			done := 0
			for _, p := range waits {
				if p.done {
					done++
				}
			}
			if want := min(id+1, producers); done != want {
				t.Fatalf("%d pushes returned after %d acknowledgements", done, id+1)
			}
		}
	})
}

func TestCancelledPush(t *testing.T) {
	bothQueues(t, 2, 0, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(-1, -1, 1), newItem(0, 0, 1))
		p1, p2, p3 := startPush(t, q, newItem(1, 1, 1)), startPush(t, q, newItem(2, 2, 1)), startPush(t, q, newItem(3, 3, 1))
		p2.cancel()
		synctest.Wait()
		if p1.done || p3.done || !p2.done || !errors.Is(p2.err, context.Canceled) {
			t.Fatalf("after the second was cancelled: %+v %+v %+v", p1, p2, p3)
		}
		wantHist(t, "what was taken up", takeAll(t, q), "-1", "0", "1", "3")
	})
}

func TestPushDeadline(t *testing.T) {
	bothQueues(t, 2, 0, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(0, 0, 1), newItem(2, 2, 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := q.Push(
			ctx,
			newItem(1, 1, 1),
		); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != time.Minute {
			t.Errorf("Push = %v after %v", err, time.Since(start))
		}
	})
}

// A waiting push that gives up may have held up smaller ones behind it.
func TestCancelLetsOthersIn(t *testing.T) {
	bothQueues(t, 9, 10, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(0, 0, 5))
		big, small, big2 := startPush(
			t,
			q,
			newItem(1, 1, 6),
		), startPush(
			t,
			q,
			newItem(2, 2, 3),
		), startPush(
			t,
			q,
			newItem(3, 3, 6),
		)
		if small.done {
			t.Fatal("the small item overtook the large one")
		}
		big.cancel()
		synctest.Wait()
		if !small.done || small.err != nil || big2.done {
			t.Fatalf("after the large one was cancelled: small %+v, second large %+v", small, big2)
		}
		q.Close()
		synctest.Wait()
	})
}

// The context ends and room is made at one moment: Push says what happened to the item.
func TestCancelAndRoomAtOnce(t *testing.T) {
	bothQueues(t, 2, 0, func(t *testing.T, q *Queue[item]) {
		for range 50 {
			mustPush(t, q, newItem(0, 0, 1), newItem(1, 1, 1))
			p := startPush(t, q, newItem(2, 2, 1))
			take(t, q, 1, 9)
			p.cancel()
			q.Ack(1) // the push may have left by now, or not
			synctest.Wait()
			if items := q.Stats().Items; (p.err == nil) != (items == 2) {
				t.Fatalf("Push = %v, but the queue has %d items", p.err, items)
			}
			takeAll(t, q)
		}
	})
}

func TestOversizeWaitsForEmptyQueue(t *testing.T) {
	bothQueues(t, 9, 10, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(0, 0, 1), newItem(1, 1, 1))
		p := startPush(t, q, newItem(2, 2, 11))
		take(t, q, 1, 9)
		q.Ack(1)
		synctest.Wait()
		if p.done {
			t.Fatal("let in behind another item that waits")
		}
		take(t, q, 1, 9)
		synctest.Wait()
		if !p.done || p.err != nil {
			t.Fatalf("not let in when nothing waited: %+v", p)
		}
		q.Ack(1)
		wantHist(t, "the large item", take(t, q, 9, 9), "2")
	})
}

func TestClose(t *testing.T) {
	bothQueues(t, 2, 0, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(0, 0, 1), newItem(1, 1, 1))
		p := startPush(t, q, newItem(2, 2, 1))
		first := take(t, q, 1, 9)
		q.Close()
		q.Close()
		synctest.Wait()
		if !p.done || !errors.Is(p.err, ErrClosed) {
			t.Errorf("a push that waited: %+v", p)
		}
		q.Ack(1)
		if err := q.Push(t.Context(), newItem(3, 3, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("Push after Close: %v", err)
		}
		wantHist(t, "what was left", append(first, take(t, q, 9, 9)...), "0", "1")
		for range 2 {
			if got, err := q.Take(t.Context(), nil, 9, 9); !errors.Is(err, ErrClosed) || len(got) > 0 {
				t.Errorf("Take of a closed, empty queue: %v, %v", got, err)
			}
		}
		q.Ack(1)
		if s := q.Stats(); s.Items != 0 || s.Acked != 2 || s.Pushed != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCloseKeepsGaps(t *testing.T) {
	q := newFull(t, dropOldest, 2, 0)
	mustPush(t, q, newItem(0, 0, 1), newItem(1, 0, 1), newItem(2, 0, 1))
	q.Close()
	wantHist(t, "what was left", takeAll(t, q), "0", "gap 1", "2")
	if _, err := q.Take(t.Context(), nil, 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Take: %v", err)
	}
}

// startTake takes items in its own goroutine.
func startTake(ctx context.Context, q *Queue[item]) (got *[]item, err *error) {
	got, err = new([]item), new(error)
	go func() { *got, *err = q.Take(ctx, nil, 9, math.MaxInt64) }()
	synctest.Wait()
	return got, err
}

func TestTakeWaits(t *testing.T) {
	bothQueues(t, 20, 0, func(t *testing.T, q *Queue[item]) {
		for round := range 3 { // a token that is left over, or missing, would show in a later round
			got, err := startTake(t.Context(), q)
			if *got != nil || *err != nil {
				t.Fatalf("Take of an empty queue returned %v, %v", *got, *err)
			}
			mustPush(t, q, newItem(round, 0, 1))
			synctest.Wait()
			if len(*got) != 1 || *err != nil {
				t.Fatalf("Take after a push: %v, %v", *got, *err)
			}

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			if _, err := q.Take(ctx, nil, 9, 9); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Fatalf("Take = %v after %v", err, time.Since(start))
			}
			cancel()
			mustPush(t, q, newItem(round, 0, 1)) // leaves a token for a Take that has gone
			take(t, q, 9, 9)
		}
		_, err := startTake(t.Context(), q)
		q.Close()
		synctest.Wait()
		if !errors.Is(*err, ErrClosed) {
			t.Errorf("a Take that waited when the queue was closed: %v", *err)
		}
	})
}

// The new item is dropped, because what waits may be on its way to disk: its gap item is something to take.
func TestTakeIsWokenByAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFull(t, dropOldest, 2, 0)
		mustPush(t, q, newItem(0, 0, 1), newItem(1, 0, 1))
		take(t, q, 1, 9)
		first, _ := startTake(t.Context(), q) // waits for an acknowledgement
		mustPush(t, q, newItem(2, 0, 1))
		q.Ack(1)
		synctest.Wait()
		wantHist(t, "the second Take", *first, "1")
		second, _ := startTake(t.Context(), q)
		q.Ack(1)
		synctest.Wait()
		wantHist(t, "the third Take", *second, "gap 2")
	})
}

// A push that replaces an item of its key needs no room, so it does not wait behind pushes that need room.
func TestReplacementPassesWaitingPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFull(t, compact, 3, 0)
		mustPush(t, q, newItem(9, 9, 1), newItem(0, 1, 1), newItem(1, 2, 1))
		other, ctrl := startPush(t, q, newItem(2, 3, 1)), startPush(t, q, newItem(3, control, 1))
		same := startPush(t, q, newItem(4, 1, 1))
		if other.done || ctrl.done || !same.done || same.err != nil {
			t.Fatalf("new key %+v, control %+v, known key %+v", other, ctrl, same)
		}
		checkQueue(t, q)
		wantHist(t, "all", takeAll(t, q), "9", "1", "0+4", "2", "3")
		synctest.Wait()
		if !other.done || !ctrl.done {
			t.Error("pushes still wait")
		}
	})
}

// A merge that makes an item smaller makes room for a push that waited because of MaxBytes.
func TestShrinkingMergeLetsOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFull(t, compact, 9, 11)
		mustPush(t, q, newItem(9, 9, 1), newItem(0, 1, 8))
		waits := startPush(t, q, newItem(1, 2, 5))
		same := startPush(t, q, newItem(2, 1, 0)) // 8 bytes become 4
		if !waits.done || !same.done || waits.err != nil || same.err != nil {
			t.Fatalf("the one that waited %+v, the one that shrank an item %+v", waits, same)
		}
		checkQueue(t, q)
		wantHist(t, "all", takeAll(t, q), "9", "0+2", "1")
	})
}

// DropOldest never makes a push wait, whatever is taken.
func TestDropOldestNeverWaits(t *testing.T) {
	q := newFull(t, dropOldest, 8, 40)
	var hist []string
	for id := range 1000 {
		mustPush(t, q, newItem(id, id%3, int64(id%30)))
		if id%7 == 0 && q.Stats().Taken == 0 {
			for _, v := range take(t, q, 2, 25) {
				hist = append(hist, v.Hist)
			}
		}
		if id%11 == 0 {
			q.Ack(q.Stats().Taken)
		}
		checkQueue(t, q)
	}
	s := q.Stats()
	if s.Blocked != 0 || s.Pushed != 1000 || s.Dropped == 0 || len(hist) == 0 {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff(slices.Compact(slices.Clone(hist)), hist); diff != "" {
		t.Errorf("given twice:\n%s", diff)
	}
}

// The consumer waits because it has taken half, and a push that gives up lets a smaller one in: the consumer gets it
// when it has acknowledged.
func TestTakeIsWokenByAnAdmission(t *testing.T) {
	bothQueues(t, 9, 10, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(0, 0, 5), newItem(1, 1, 4))
		take(t, q, 9, 99)
		big := startPush(t, q, newItem(2, 2, 6))
		small := startPush(t, q, newItem(3, 3, 1))
		got, _ := startTake(t.Context(), q)
		big.cancel()
		synctest.Wait()
		if !small.done || len(*got) > 0 {
			t.Errorf("let in: %t; took %v", small.done, *got)
		}
		q.Ack(1)
		synctest.Wait()
		wantHist(t, "the second Take", *got, "1", "3")
		q.Close()
		synctest.Wait()
	})
}

// At the end of the process, all waiting pushes are accepted, and so are all later ones.
func TestLift(t *testing.T) {
	bothQueues(t, 2, 10, func(t *testing.T, q *Queue[item]) {
		mustPush(t, q, newItem(1, 1, 5), newItem(2, 2, 5))
		first, second := startPush(t, q, newItem(3, 3, 5)), startPush(t, q, newItem(4, 4, 50))
		if first.done || second.done {
			t.Fatal("a push on a full queue returned")
		}
		q.Lift()
		synctest.Wait()
		if !first.done || first.err != nil || !second.done || second.err != nil {
			t.Fatalf("%+v, %+v", first, second)
		}
		mustPush(t, q, newItem(5, 5, 5))
		wantHist(t, "all", takeAll(t, q), "1", "2", "3", "4", "5")
	})
}

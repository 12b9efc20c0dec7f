package fifo

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const hold = 250 * time.Millisecond

// deepSpill is a queue for 8 items that has a quarter of them, and a Push that finds it so.
func deepSpill(t *testing.T, path string) (s *spillTest, pushed *atomic.Bool) {
	t.Helper()
	s = openSpill(t, path, func(o *Options[item]) { o.HoldUp = hold }).start()
	s.push(1, 8/shallowPart)
	return s, s.pushLater(3, 3)
}

// pushLater pushes in a goroutine, which ends with the push, and says when it is done.
func (s *spillTest) pushLater(from, to int) *atomic.Bool {
	pushed := &atomic.Bool{}
	go func() {
		s.push(from, to)
		pushed.Store(true)
	}()
	synctest.Wait()
	return pushed
}

// A source that is a little faster than the consumer is held up, and nothing is written.
func TestSpillWaitsForAConsumerThatGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := deepSpill(t, path)
		passTime(hold / 2)
		if pushed.Load() || s.isSpilling() {
			t.Fatal("the queue does not wait")
		}
		s.wantIDs("taken", s.takeIDs(1), 1, 1)
		synctest.Wait()
		if !pushed.Load() || s.isSpilling() {
			t.Error("the push is not let in when there is room")
		}
		s.wantIDs("taken", s.takeIDs(2), 2, 3)
		if segments := segmentsOf(t, path); len(segments) > 0 {
			t.Errorf("written: %v", segments)
		}
	})
}

// A consumer that takes nothing holds up the source once, for as long as one push may wait. Memory is filled then,
// and the queue spills at once.
func TestSpillHoldsUpOnce(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := deepSpill(t, path)
		passTime(hold - time.Millisecond)
		if pushed.Load() {
			t.Fatal("the queue does not wait")
		}
		passTime(2 * time.Millisecond)
		synctest.Wait()
		if !pushed.Load() || s.isSpilling() {
			t.Fatal("the queue waits for a consumer that does nothing, or spills although there is room in memory")
		}
		began := time.Now()
		s.push(4, 60)
		if took := time.Since(began); took > 0 || !s.isSpilling() {
			t.Errorf("pushes to a queue that was held up wait for %s; it spills: %t", took, s.isSpilling())
		}
		s.wantIDs("taken", s.takeIDs(60), 1, 60)
	})
}

// A consumer that goes on, but is slower than the source for long, does not hold it up for long; when it has caught
// up it may again.
func TestSpillEndsTheHoldingUp(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) { o.HoldUp = hold }).start()
		next := 1
		for range 2 {
			began := time.Now()
			end := next + 1000
			var pushed atomic.Int64
			pushed.Store(int64(next) - 1)
			go func(from int) { // ends when all are pushed
				for id := from; id < end && s.Push(t.Context(), newItem(id, 0, 1)) == nil; id++ {
					pushed.Store(int64(id))
				}
			}(next)
			for !s.isSpilling() {
				passTime(hold * 4 / 5)
				synctest.Wait()
				s.takeIDs(1)
				next++
				if time.Since(began) > time.Minute {
					t.Fatal("the source is held up forever")
				}
			}
			if took := time.Since(began); took < holdUpPart*hold || took > holdUpPart*hold+2*hold {
				t.Errorf("it spills after %s", took)
			}
			for next < end {
				s.takeIDs(1)
				next++
			}
			passTime(time.Second)
			if s.isSpilling() {
				t.Fatal("still spilling")
			}
		}
	})
}

// A queue that was deep and is not any more counts from the start.
func TestSpillForgetsThatItWasFull(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := deepSpill(t, path)
		passTime(hold / 2)
		s.takeIDs(3)
		synctest.Wait()
		passTime(time.Hour)
		s.push(4, 5)
		later := s.pushLater(6, 6)
		passTime(hold / 2)
		if !pushed.Load() || later.Load() || s.isSpilling() {
			t.Error("the time in which the queue was not deep counts")
		}
		passTime(hold)
		synctest.Wait()
		if !later.Load() {
			t.Error("the push is not let in")
		}
		s.wantIDs("taken", s.takeIDs(3), 4, 6)
	})
}

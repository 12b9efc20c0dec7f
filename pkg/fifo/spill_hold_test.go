package fifo

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const hold = 250 * time.Millisecond

// fullSpill is a queue of 8 items that is full, and a Push that finds it full.
func fullSpill(t *testing.T, path string) (s *spillTest, pushed *atomic.Bool) {
	t.Helper()
	s = openSpill(t, path, func(o *SpillOptions[item]) { o.HoldUp = hold }).start()
	s.push(1, 8)
	return s, s.pushLater(9, 9)
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
		s, pushed := fullSpill(t, path)
		passTime(hold / 2)
		if pushed.Load() || s.isSpilling() {
			t.Fatal("the queue does not wait")
		}
		s.wantIDs("taken", s.takeIDs(1), 1, 1)
		synctest.Wait()
		if !pushed.Load() || s.isSpilling() {
			t.Error("the push is not let in when there is room")
		}
		s.wantIDs("taken", s.takeIDs(8), 2, 9)
		if segments := segmentsOf(t, path); len(segments) > 0 {
			t.Errorf("written: %v", segments)
		}
	})
}

// A consumer that takes nothing holds up the source once, for as long as one push may wait.
func TestSpillHoldsUpOnce(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := fullSpill(t, path)
		passTime(hold - time.Millisecond)
		if pushed.Load() {
			t.Fatal("the queue does not wait")
		}
		passTime(2 * time.Millisecond)
		synctest.Wait()
		if !pushed.Load() || !s.isSpilling() {
			t.Fatal("the queue waits for a consumer that does nothing")
		}
		began := time.Now()
		s.push(10, 60)
		if took := time.Since(began); took > 0 {
			t.Errorf("pushes to a queue that spills wait for %s", took)
		}
		s.wantIDs("taken", s.takeIDs(60), 1, 60)
	})
}

// A consumer that goes on, but is slower than the source for long, does not hold it up for long; when it has caught
// up it may again.
func TestSpillEndsTheHoldingUp(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *SpillOptions[item]) { o.HoldUp = hold }).start()
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
					t.Fatal("the source is held up for ever")
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

// A queue that was full and is not any more counts anew.
func TestSpillForgetsThatItWasFull(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := fullSpill(t, path)
		passTime(hold / 2)
		s.takeIDs(9)
		synctest.Wait()
		passTime(time.Hour)
		s.push(10, 17)
		later := s.pushLater(18, 18)
		passTime(hold / 2)
		if !pushed.Load() || later.Load() || s.isSpilling() {
			t.Error("the time in which memory was not full counts")
		}
		passTime(hold)
		synctest.Wait()
		if !later.Load() {
			t.Error("the push is not let in")
		}
		s.wantIDs("taken", s.takeIDs(9), 10, 18)
	})
}

package fifo

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const patience = 2 * time.Second

// openPatient is an empty queue for 8 items, all of which came to be now.
func openPatient(t *testing.T, path string, hurry func() bool) *spillTest {
	t.Helper()
	born := time.Now()
	return openSpill(t, path, func(o *SpillOptions[item]) {
		o.Patience, o.Hurry, o.Since = patience, hurry, func(item) time.Time { return born }
	}).start()
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

// patientSpill is a full queue, and a Push that finds it full.
func patientSpill(t *testing.T, path string, hurry func() bool) (s *spillTest, pushed *atomic.Bool) {
	t.Helper()
	s = openPatient(t, path, hurry)
	s.push(1, 8)
	return s, s.pushLater(9, 9)
}

// A queue with room makes a push wait for a moment if the consumer is busy, and fills up if it stays so.
func TestSpillFillsUpOnlyForASlowConsumer(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openPatient(t, path, nil)
		s.push(1, 8/easyPart)
		pushed := s.pushLater(8/easyPart+1, 8)
		if got := s.Stats().Items; got != 8/easyPart {
			t.Fatalf("%d items at once, want %d", got, 8/easyPart)
		}
		s.wantIDs("taken", s.takeIDs(1), 1, 1)
		synctest.Wait()
		if got := s.Stats().Items; got != 8/easyPart || pushed.Load() {
			t.Fatalf("%d items after one was taken, want %d", got, 8/easyPart)
		}
		passTime(patience/easyPatience + patienceTick)
		synctest.Wait()
		if !pushed.Load() || s.isSpilling() {
			t.Error("a consumer that does nothing holds the source up although there is room")
		}
		s.wantIDs("taken", s.takeIDs(7), 2, 8)
	})
}

// For how long the source was held up is forgotten when the consumer has caught up with it, and not before.
func TestSpillForgetsHoldingUp(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openPatient(t, path, nil)
		s.push(1, 8)
		held := func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.held
		}
		if got := held(); got < patience/easyPatience {
			t.Fatalf("held up for %s", got)
		}
		s.takeIDs(8)
		s.push(9, 9)
		if held() == 0 {
			t.Error("forgotten while the consumer had no pause")
		}
		s.takeIDs(1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*rest)
		defer cancel()
		if _, err := s.Take(ctx, nil, 1, 1); err == nil { // the consumer waits
			t.Fatal("there was an item more")
		}
		s.push(10, 10)
		if got := held(); got != 0 {
			t.Errorf("%s remembered, although the consumer had nothing to do", got)
		}
	})
}

// A source that is a little faster than the consumer is held up, and nothing is written.
func TestSpillWaitsForAConsumerThatGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := patientSpill(t, path, nil)
		passTime(time.Second)
		if pushed.Load() || s.isSpilling() {
			t.Fatal("the queue does not wait")
		}
		s.wantIDs("taken", s.takeIDs(1), 1, 1)
		synctest.Wait()
		if !pushed.Load() || s.isSpilling() {
			t.Error("the push is not let in when there is room")
		}
		s.wantIDs("taken", s.takeIDs(8), 2, 9)
		if fileExists(t, path) {
			t.Error("there is a file")
		}
	})
}

func TestSpillLosesPatience(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s, pushed := patientSpill(t, path, nil)
		passTime(2*time.Second + patienceTick)
		synctest.Wait()
		if !pushed.Load() || !s.isSpilling() {
			t.Error("the queue waits for a consumer that does nothing")
		}
		s.wantIDs("taken", s.takeIDs(9), 1, 9)
	})
}

func TestSpillIsHurried(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		var hurry atomic.Bool
		s, pushed := patientSpill(t, path, hurry.Load)
		passTime(100 * time.Millisecond)
		if pushed.Load() {
			t.Fatal("the queue does not wait")
		}
		hurry.Store(true)
		passTime(patienceTick + time.Millisecond)
		synctest.Wait()
		if !pushed.Load() || !s.isSpilling() {
			t.Error("the queue goes on waiting while others starve")
		}
		s.wantIDs("taken", s.takeIDs(9), 1, 9)
	})
}

// The time after a push that waited was let in does not count, whatever was acknowledged with it.
func TestSpillHoldsUpOnlyWhileAPushWaits(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openPatient(t, path, nil)
		s.push(1, 8/easyPart)
		pushed := s.pushLater(8/easyPart+1, 8/easyPart+1)
		s.takeIDs(8 / easyPart) // all that there is, at once
		synctest.Wait()
		if !pushed.Load() {
			t.Fatal("the push is not let in")
		}
		passTime(time.Hour)
		s.push(8/easyPart+2, 8/easyPart+2)
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		if held > patience {
			t.Errorf("held up for %s", held)
		}
		s.takeIDs(2)
	})
}

// Somebody who starved once does not starve again with the next push.
func TestSpillStaysHurried(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		var hurry atomic.Bool
		s := openPatient(t, path, hurry.Load)
		s.push(1, 8/easyPart)
		pushed := s.pushLater(8/easyPart+1, 8/easyPart+1)
		hurry.Store(true)
		passTime(patienceTick + time.Millisecond)
		synctest.Wait()
		if !pushed.Load() {
			t.Fatal("a push waits although others starve and there is room")
		}
		hurry.Store(false)
		began := time.Now()
		if s.push(8/easyPart+2, 8); time.Since(began) > 0 {
			t.Error("the next push waits again")
		}
		s.takeIDs(8)
	})
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewRing(RingOptions[item]{MaxItems: 4})
		if q.Idle() != 0 {
			t.Error("idle before anybody takes")
		}
		taken := make(chan []item)
		go func() { // ends with the take below
			batch, _ := q.Take(t.Context(), nil, 1, 1)
			taken <- batch
		}()
		synctest.Wait()
		passTime(time.Second)
		if got := q.Idle(); got != time.Second {
			t.Errorf("idle for %s", got)
		}
		if err := q.Push(t.Context(), newItem(1, 1, 1)); err != nil {
			t.Fatal(err)
		}
		<-taken
		if got := q.Idle(); got != 0 {
			t.Errorf("idle for %s with an item taken", got)
		}
	})
}

// A consumer that goes on, but is slower than the source for long, does not hold it up for ever.
func TestSpillEndsTheHoldingUp(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *SpillOptions[item]) {
			o.Patience, o.Since = 2*time.Second, func(v item) time.Time { return time.Now().Add(-time.Duration(v.Size)) } // always young
		}).start()
		began := time.Now()
		go func() { // ends with the last push, or when the queue is closed
			for id := 1; id < 1000 && s.Push(t.Context(), newItem(id, 0, 1)) == nil; id++ {
			}
		}()
		for !s.isSpilling() {
			passTime(200 * time.Millisecond)
			synctest.Wait()
			s.takeIDs(1)
			if time.Since(began) > time.Minute {
				t.Fatal("the source is held up for ever")
			}
		}
		if took := time.Since(began); took < holdUp*2*time.Second {
			t.Errorf("it spills after %s", took)
		}
		s.Close()
	})
}

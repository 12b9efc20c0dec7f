package fifo

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// patientSpill is a full queue, whose items came to be when they were pushed, and a Push that finds it full.
func patientSpill(t *testing.T, path string, hurry func() bool) (s *spillTest, pushed *atomic.Bool) {
	t.Helper()
	began := map[int]time.Time{}
	s = openSpill(t, path, func(o *SpillOptions[item]) {
		o.Patience, o.Hurry = 2*time.Second, hurry
		o.Since = func(v item) time.Time {
			if _, ok := began[v.ID]; !ok {
				began[v.ID] = time.Now()
			}
			return began[v.ID]
		}
	}).start()
	s.push(1, 8)
	pushed = &atomic.Bool{}
	go func() { // ends with the push
		s.push(9, 9)
		pushed.Store(true)
	}()
	synctest.Wait()
	return s, pushed
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

package fifo

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The room in memory and on disk is never less than what is predicted from Room, and not much more.
func TestRoom(t *testing.T) {
	for name, maxBytes := range map[string]int64{"items bound memory": 0, "bytes bound memory": 40} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				const bound = 60000
				big := strings.Repeat("x", 3000)
				s := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes, o.MaxBytes = bound, maxBytes }).start()
				var predicted []int
				for id := 0; ; id++ {
					bytes := s.SpillStats().Bytes
					predicted = append(predicted, int(bound-bytes)/3100+s.Room())
					done := atomic.Bool{}
					go func() {
						_ = s.Push(t.Context(), item{ID: id, Size: 5, Hist: big})
						done.Store(true)
					}()
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if !done.Load() {
						break
					}
				}
				for id, more := range predicted {
					if left := len(predicted) - 1 - id; more > left || more < left-3 {
						t.Errorf("after %d items, there is room for %d, predicted %d", id, left, more)
					}
				}
				s.takeIDs(len(predicted))
			})
		})
	}
}

// BlockedSince is the start of the wait, also if single pushes are accepted in between, until none has waited for some
// seconds. Short waits do not count.
func TestBlockedSince(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes = 10 }).start()
		check := func(when string, want time.Time) {
			t.Helper()
			synctest.Wait()
			if got := s.BlockedSince(); !got.Equal(want) {
				t.Errorf("%s: blocked since %v, want %v", when, got, want)
			}
		}
		pushAll(s, 1, 40)
		check("short wait", time.Time{})
		synctest.Wait()
		began := time.Now()
		time.Sleep(time.Minute)
		since := s.BlockedSince()
		if since.Sub(began).Abs() > time.Second {
			t.Errorf("blocked since %v, began to push at %v", since, began)
		}
		s.takeIDs(3)
		check("pushes are accepted", since)
		time.Sleep(5 * time.Second)
		s.takeIDs(37)
		check("the last push has waited a moment ago", since)
		time.Sleep(unblockedAfter / 2)
		check("the last push has waited some seconds ago", since)
		time.Sleep(unblockedAfter/2 + time.Second)
		check("no push waits", time.Time{})
		pushAll(s, 41, 80)
		time.Sleep(time.Minute)
		if again := s.BlockedSince(); !again.After(since.Add(time.Minute)) {
			t.Errorf("blocked again since %v", again)
		}
		s.takeIDs(40)
	})
}

// pushAll pushes items in a goroutine.
func pushAll(s *spillTest, from, to int) {
	go func() {
		for id := from; id <= to; id++ {
			_ = s.Push(s.t.Context(), newItem(id, 0, 1)) // fails if the test ends
		}
	}()
}

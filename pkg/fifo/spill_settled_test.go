package fifo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is acknowledged from memory while the file still has older items is settled when the file says that those are
// acknowledged: until then a crash brings them again, and what is newer has to follow them.
func TestSpillSettlesInTheOrderOfTheFile(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) {
			o.MaxItems = 4
			o.Receipt = func(v item) item { return item{ID: v.ID} }
		})
		s.syncInterval = time.Hour
		s.start()
		s.push(1, 6)
		s.Persist()
		synctest.Wait()
		s.wantIDs("settled by the file", s.settledIDs(), 1, 6)
		s.takeIDs(6)
		s.push(7, 7)
		s.takeIDs(1)
		s.wantIDs("settled while the file has older items", s.settledIDs(), 1, 6)
		passTime(time.Hour)
		synctest.Wait()
		s.wantIDs("settled when the file has none", s.settledIDs(), 1, 7)
		s.push(8, 8)
		s.takeIDs(1)
		s.wantIDs("settled without the file", s.settledIDs(), 1, 8)
	})
}

// openAging is an empty queue for 8 items, which come to be when they are pushed.
func openAging(t *testing.T, path string, age time.Duration) *spillTest {
	t.Helper()
	began := time.Now()
	s := openSpill(t, path, func(o *Options[item]) {
		o.Since = func(v item) time.Time { return began.Add(time.Duration(v.Size)) }
		o.Size = func(item) int64 { return 0 }
	})
	s.maxAge = age
	return s.start()
}

// pushNow pushes an item that came to be at a time after the opening of the queue.
func (s *spillTest) pushNow(id int, after time.Duration) {
	s.t.Helper()
	if err := s.Push(s.t.Context(), item{ID: id, Key: id % 3, Size: int64(after)}); err != nil {
		s.t.Fatal(err)
	}
}

// What waits for too long goes to disk, however little it is, and with it what was pushed since.
func TestSpillByAge(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openAging(t, path, maxAge)
		passTime(time.Hour)
		s.pushNow(1, time.Hour)
		passTime(6 * time.Second)
		s.pushNow(2, time.Hour+6*time.Second)
		if passTime(maxAge - 7*time.Second); fileExists(t, path) {
			t.Error("written before its time")
		}
		passTime(2 * time.Second)
		s.wantIDs("settled", s.settledIDs(), 1, 2)
		s.pushNow(3, time.Hour+11*time.Second)
		passTime(syncInterval)
		synctest.Wait()
		s.wantIDs("settled", s.settledIDs(), 1, 3)
		s.abandon()

		s2 := openAging(t, path, maxAge)
		s2.wantIDs("taken after a crash", s2.takeIDs(3), 1, 3)
		if passTime(time.Second); s2.isSpilling() {
			t.Error("still spilling, although everything was acknowledged")
		}
	})
}

// Items that are acknowledged in time are not written. The items that remain when an old item is acknowledged are not
// written either.
func TestSpillByAgeOnlyWhatIsOld(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openAging(t, path, 11*time.Second)
		for id := range 20 {
			s.pushNow(id+1, time.Duration(id)*5*time.Second)
			passTime(5 * time.Second)
			if id > 0 {
				s.takeIDs(1)
			}
		}
		if fileExists(t, path) {
			t.Error("items that waited for five seconds were written")
		}
	})
}

// Items that do not fit into a commit are written by the next commits, at once.
func TestSpillPersist(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) { o.MaxItems = 100 })
		s.syncInterval = time.Hour
		s.commitBytes, s.batchBytes = 8, 8
		s.start()
		s.Persist() // nothing waits
		s.push(1, 40)
		take(t, s, 3, 1<<30)
		synctest.Wait()
		if fileExists(t, path) {
			t.Error("there is a file already")
		}
		s.Persist()
		synctest.Wait()
		s.wantIDs("settled", s.settledIDs(), 1, 40)
		s.Ack(3)
		s.wantIDs("taken", s.takeIDs(37), 4, 40)
		passTime(time.Hour)
		synctest.Wait()
		if s.isSpilling() {
			t.Error("still spilling, although everything was acknowledged")
		}
	})
}

// Items that cannot be written at the end are reported in the error of Run, in the log and in the count, and are not
// settled.
func TestSpillFailsAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 4)
		s.mu.Lock()
		s.encode = func(v item) error {
			if v.ID == 3 {
				return errors.New("not this one")
			}
			return nil
		}
		s.mu.Unlock()
		if err := s.end(); err == nil || !strings.Contains(err.Error(), "not this one") {
			t.Errorf("Run = %v", err)
		}
		s.wantIDs("settled", s.settledIDs(), 1, 2)
		if errs := s.SpillStats().Errors; errs != 1 || strings.Count(s.logged(), "level=ERROR") != 1 {
			t.Errorf("%d errors; log:\n%s", errs, s.logged())
		}
	})
}

// If the context of Run has already ended, Run still writes the items that were pushed before.
func TestSpillEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil)
		s.push(1, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		s.wantIDs("settled", s.settledIDs(), 1, 3)
	})
}

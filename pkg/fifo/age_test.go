package fifo

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// Age is the age of the oldest unacknowledged item, whether the item is in memory, taken or also on disk.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		path := filepath.Join(t.TempDir(), "q")
		open := func() *spillTest {
			return openSpill(t, path, func(o *Options[item]) {
				o.Since = func(v item) time.Time { return began.Add(time.Duration(v.ID) * time.Second) }
			})
		}
		q := open().start()
		want := func(where string, oldest int) {
			t.Helper()
			time.Sleep(time.Hour)
			synctest.Wait()
			age := time.Since(began.Add(time.Duration(oldest) * time.Second))
			if oldest < 0 {
				age = 0
			}
			if got := q.Age(); got != age {
				t.Errorf("%s: %s, want %s", where, got, age)
			}
		}
		want("empty", -1)
		for n := range 20 { // twice as many as there is room for in memory
			if err := q.Push(t.Context(), newItem(n, n, 1)); err != nil {
				t.Fatal(err)
			}
		}
		want("on disk", 0)
		for oldest := 0; oldest < 20; {
			batch, err := q.Take(t.Context(), nil, 3, 100)
			if err != nil {
				t.Fatal(err)
			}
			want("taken", oldest)
			oldest += len(batch)
			q.Ack(len(batch))
		}
		want("all acknowledged", -1)
		for n := range 20 {
			if err := q.Push(t.Context(), newItem(n, n, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.end(); err != nil {
			t.Error(err)
		}
		q = open().start()
		if err := q.Push(t.Context(), newItem(20, 20, 1)); err != nil {
			t.Fatal(err)
		}
		want("left by another process", -1)
		if _, err := q.Take(t.Context(), nil, 1, 100); err != nil {
			t.Fatal(err)
		}
		want("left by another process, and taken", 0)
		if err := q.end(); err != nil {
			t.Error(err)
		}
	})
}

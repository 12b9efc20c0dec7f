package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// openJournal opens a journal that is closed at the end of the test.
func openJournal(t testing.TB, dir string, change ...func(*JournalOptions)) *Journal {
	t.Helper()
	o := JournalOptions{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	j, err := OpenJournal(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func newDir(t testing.TB) string { return filepath.Join(t.TempDir(), "audit") }

// event returns an event whose JSON has at least this size.
func event(t testing.TB, id string, size int) []byte {
	t.Helper()
	events, err := parseList(listOf(strings.TrimSuffix(item(id), "}") + `,"x":"` + strings.Repeat("x", size) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	return events[0]
}

// appendTo appends events with these ids, each of them alone.
func appendTo(t testing.TB, j *Journal, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := j.Append(t.Context(), [][]byte{event(t, id, 0)}); err != nil {
			t.Fatal(err)
		}
	}
}

func numbered(from, to int) (ids []string) {
	for n := from; n <= to; n++ {
		ids = append(ids, fmt.Sprint("e", n))
	}
	return ids
}

// read returns the ids of all events from a number on, and the numbers that are lost.
func read(t testing.TB, j *Journal, from uint64) (ids []string, lost []uint64) {
	t.Helper()
	for last := j.Status().Last; from <= last; {
		records, err := j.Read(t.Context(), from, 100)
		if err != nil || len(records) == 0 {
			t.Fatalf("%d records, %v", len(records), err)
		}
		for _, r := range records {
			if r.First != from || r.Last < r.First {
				t.Fatalf("read %d to %d, want %d", r.First, r.Last, from)
			}
			if from = r.Last + 1; r.Err == nil {
				ids = append(ids, r.Event.AuditID)
				continue
			}
			for n := r.First; n <= r.Last; n++ {
				lost = append(lost, n)
			}
		}
	}
	return ids, lost
}

func wantRead(t testing.TB, j *Journal, from uint64, want ...string) {
	t.Helper()
	if ids, lost := read(t, j, from); !slices.Equal(ids, want) || lost != nil {
		t.Fatalf("read %v, lost %v, want %v", ids, lost, want)
	}
}

func TestAppendAndRead(t *testing.T) {
	dir := newDir(t)
	j := openJournal(t, dir)
	events, err := parseList(sent(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Append(t.Context(), events), j.Append(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again := openJournal(t, dir)
	records, err := again.Read(t.Context(), 1, math.MaxInt)
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, r := range records {
		if r.First != uint64(i+1) || r.Last != r.First || r.Err != nil || !bytes.Equal(r.Event.Raw, events[i]) ||
			r.Event.AuditID == "" {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if records, err = again.Read(t.Context(), 2, 1); err != nil || len(records) != 1 || records[0].First != 2 {
		t.Errorf("at least one event: %v, %v", records, err)
	}
	if s := again.Status(); s.Acked != 0 || s.Last != 3 || s.Bytes < 2000 {
		t.Errorf("%+v", s)
	}
}

func TestAck(t *testing.T) {
	dir := newDir(t)
	j := openJournal(t, dir)
	appendTo(t, j, numbered(1, 3)...)
	if err := j.Ack(4); err == nil {
		t.Error("acknowledged what does not exist")
	}
	if err := j.Ack(2); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Read(t.Context(), 2, 1); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("read an acknowledged event: %v", err)
	}
	wantRead(t, j, 3, "e3")
	if err := errors.Join(j.Ack(3), j.Ack(1)); err != nil {
		t.Fatal(err)
	}
	if s := j.Status(); s.Bytes != 0 || s.Acked != 3 {
		t.Errorf("%+v", s)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again := openJournal(t, dir) // numbers and identity stay the same, although no event is left
	appendTo(t, again, "e4")
	if next, lost := again.Resume(Position{j.ID(), 3}); next != 4 || lost != nil {
		t.Errorf("%d, %v", next, lost)
	}
	wantRead(t, again, 4, "e4")
}

// Read waits for the event, for ctx or for Close.
func TestReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, newDir(t))
		appendTo(t, j, "e1")
		got := make(chan error)
		readNext := func(ctx context.Context, number uint64) {
			_, err := j.Read(ctx, number, 1)
			got <- err
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		go readNext(ctx, 2)
		synctest.Wait()
		stop := errors.New("stop")
		cancel(stop)
		if err := <-got; !errors.Is(err, stop) {
			t.Errorf("canceled: %v", err)
		}
		go readNext(t.Context(), 3)
		synctest.Wait()
		appendTo(t, j, "e2", "e3")
		if err := <-got; err != nil {
			t.Error(err)
		}
		go readNext(t.Context(), 4)
		synctest.Wait()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		_, readErr := j.Read(t.Context(), 1, 1)
		for _, err := range []error{readErr, j.Append(t.Context(), [][]byte{event(t, "e4", 0)}), j.Ack(1)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
	})
}

// Close ends the calls of Append that wait.
func TestCloseEndsAppend(t *testing.T) {
	j := openJournal(t, newDir(t))
	j.writing <- struct{}{}
	appended, closed := make(chan error), make(chan error)
	go func() { appended <- j.Append(t.Context(), [][]byte{event(t, "e1", 0)}) }()
	waitFor(t, j, 1)
	go func() { closed <- j.Close() }()
	j.release()
	err := <-appended // either was first
	if closeErr := <-closed; closeErr != nil || err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("%v, %v", err, closeErr)
	}
}

// waitFor waits until so many calls of Append wait for the disk.
func waitFor(t *testing.T, j *Journal, calls int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(time.Millisecond) {
		j.mu.Lock()
		n := len(j.waiting)
		j.mu.Unlock()
		if n == calls {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls wait, want %d", n, calls)
		}
	}
}

// Calls at the same time share one write. One that is canceled before has appended nothing, and one for which there is
// no room does not affect others.
func TestGroupCommit(t *testing.T) {
	j := openJournal(t, newDir(t), func(o *JournalOptions) { o.MaxBytes = 20000 })
	j.writing <- struct{}{} // somebody writes
	const calls = 20
	results := make(chan error, calls)
	for n := range calls {
		go func() {
			results <- j.Append(t.Context(), [][]byte{event(t, fmt.Sprint(n), 0), event(t, fmt.Sprint(n), 0)})
		}()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	canceled, tooLarge := make(chan error), make(chan error)
	go func() { canceled <- j.Append(ctx, [][]byte{event(t, "canceled", 0)}) }()
	waitFor(t, j, calls+1)
	stop := errors.New("stop")
	cancel(stop)
	if err := <-canceled; !errors.Is(err, stop) {
		t.Errorf("canceled: %v", err)
	}
	go func() { tooLarge <- j.Append(t.Context(), [][]byte{event(t, "small", 0), event(t, "large", 20000)}) }()
	waitFor(t, j, calls+1)
	j.commit()
	for range calls {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := <-tooLarge; !errors.Is(err, ErrFull) {
		t.Errorf("too large: %v", err)
	}
	j.release()
	ids, lost := read(t, j, 1)
	if len(ids) != 2*calls || lost != nil || slices.Contains(ids, "canceled") || slices.Contains(ids, "small") {
		t.Errorf("read %v, lost %v", ids, lost)
	}
	for i := 0; i+1 < len(ids); i += 2 {
		if ids[i] != ids[i+1] {
			t.Fatalf("the events of a call are not together: %v", ids)
		}
	}
}

// Many goroutines append, read and acknowledge.
func TestConcurrent(t *testing.T) {
	j := openJournal(t, newDir(t))
	const writers, each = 8, 50
	var appending sync.WaitGroup
	for w := range writers {
		appending.Go(func() {
			for n := range each {
				if err := j.Append(t.Context(), [][]byte{event(t, fmt.Sprintf("%d-%d", w, n), 1000)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := [writers]int{}
	for number := uint64(1); number <= writers*each; {
		records, err := j.Read(t.Context(), number, 5000)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			var w, n int
			if _, err := fmt.Sscanf(r.Event.AuditID, "%d-%d", &w, &n); err != nil || r.Err != nil || n != next[w] {
				t.Fatalf("%+v: %v, want event %d", r, err, next[w])
			}
			next[w]++
			number = r.Last + 1
		}
		if err := j.Ack(number - 1); err != nil {
			t.Fatal(err)
		}
	}
	appending.Wait()
	if s := j.Status(); s.Last != writers*each || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// Calls that share a write do not exceed the limit together.
func TestFullInGroup(t *testing.T) {
	j := openJournal(t, newDir(t), func(o *JournalOptions) { o.MaxBytes = 10_000 })
	j.writing <- struct{}{}
	results := make(chan error)
	for range 3 {
		go func() { results <- j.Append(t.Context(), [][]byte{event(t, "e", 6000)}) }()
	}
	waitFor(t, j, 3)
	j.release()
	full := 0
	for range 3 {
		if err := <-results; errors.Is(err, ErrFull) {
			full++
		} else if err != nil {
			t.Error(err)
		}
	}
	if s := j.Status(); full != 2 || s.Last != 1 || s.Bytes > s.MaxBytes {
		t.Errorf("%d calls found no room, %+v", full, s)
	}
}

// The journal takes no more than its limit, and continues when events are acknowledged.
func TestFull(t *testing.T) {
	const limit = 2*segmentBytes + 1000
	dir := newDir(t)
	j := openJournal(t, dir, func(o *JournalOptions) { o.MaxBytes = limit })
	n := 0
	var err error
	for ; err == nil && n < 100; n++ {
		err = j.Append(t.Context(), [][]byte{event(t, fmt.Sprint("e", n+1), 500_000)})
	}
	if n--; !errors.Is(err, ErrFull) || n < 15 {
		t.Fatalf("after %d events: %v", n, err)
	}
	if s := j.Status(); s.Bytes > limit || s.Bytes < limit-600_000 || s.Last != uint64(n) {
		t.Errorf("%+v", s)
	}
	appendTo(t, j, "small")
	if ids, lost := read(t, j, 1); !slices.Equal(ids, append(numbered(1, n), "small")) || lost != nil {
		t.Errorf("read %v, lost %v", ids, lost)
	}
	if err := j.Ack(uint64(n / 2)); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), [][]byte{event(t, "large", 500_000)}); err != nil {
		t.Error(err)
	}
	wantRead(t, j, uint64(n), fmt.Sprint("e", n), "small", "large")
}

// What Resume returns after a change of the directory, while two readers are at 2 and 4 of 5 events.
func TestResume(t *testing.T) {
	segmentIn := func(dir string) string {
		names, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		return names[0]
	}
	for _, c := range []struct {
		name   string
		change func(dir, old string) error // old is a copy of the directory with 3 events
		next   [3]uint64                   // of a reader at 2, of one at 4, and of a new one
		lost   bool
		same   bool // the identity
		left   int  // events
	}{
		{"nothing", func(string, string) error { return nil }, [3]uint64{3, 5, 3}, false, true, 3},
		{"another disk", func(dir, _ string) error { return os.RemoveAll(dir) }, [3]uint64{1, 1, 1}, true, false, 0},
		{"an older copy", func(dir, old string) error {
			return errors.Join(os.RemoveAll(dir), os.Rename(old, dir))
		}, [3]uint64{1, 1, 1}, true, false, 3},
		{"no identity", func(dir, _ string) error {
			return os.Remove(filepath.Join(dir, identityName))
		}, [3]uint64{3, 3, 3}, true, false, 3},
		{"no state", func(dir, _ string) error { return os.Remove(filepath.Join(dir, "state")) }, [3]uint64{1, 1, 1}, true, false, 0},
		{"no state and events", func(dir, _ string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "state")), os.Remove(segmentIn(dir)))
		}, [3]uint64{1, 1, 1}, true, false, 0},
		{"no events", func(dir, _ string) error { return os.Remove(segmentIn(dir)) }, [3]uint64{3, 5, 3}, false, true, 3}, // Read reports them
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			j := openJournal(t, dir)
			appendTo(t, j, numbered(1, 3)...)
			old := filepath.Join(t.TempDir(), "old")
			if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			appendTo(t, j, numbered(4, 5)...)
			if err := errors.Join(j.Ack(2), j.Close(), c.change(dir, old)); err != nil {
				t.Fatal(err)
			}
			positions := []Position{{j.ID(), 2}, {j.ID(), 4}, {}}
			for range 2 { // the second time, the new identity is on disk
				again := openJournal(t, dir, func(o *JournalOptions) { o.Known = positions })
				if (again.ID() == j.ID()) != c.same || again.ID() == "" {
					t.Errorf("identity %s, was %s", again.ID(), j.ID())
				}
				for i, p := range positions {
					next, lost := again.Resume(p)
					if next != c.next[i] || (lost != nil) != (c.lost && i < 2) {
						t.Errorf("%+v: %d, %v; want %d, %v", p, next, lost, c.next[i], c.lost)
					}
				}
				if s := again.Status(); int(s.Last-s.Acked) != c.left {
					t.Errorf("%+v, want %d events", s, c.left)
				}
				if err := again.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The identity stays, also while the journal is empty, and is on disk before the first event.
func TestIdentityStays(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(filepath.Join(dir, identityName, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, dir)
	if err := j.Append(t.Context(), [][]byte{event(t, "e1", 0)}); err == nil || j.Status().Last > 0 {
		t.Fatal("appended without an identity")
	}
	if err := os.RemoveAll(filepath.Join(dir, identityName)); err != nil {
		t.Fatal(err)
	}
	appendTo(t, j, "e1")
	if image := openJournal(t, copyOf(t, dir)); image.ID() != j.ID() {
		t.Errorf("identity %s, was %s", image.ID(), j.ID())
	}
	empty := newDir(t)
	var id string
	for range 3 {
		j := openJournal(t, empty, func(o *JournalOptions) { o.Known = []Position{{id, 0}} })
		if next, lost := j.Resume(Position{id, 0}); id != "" && (next != 1 || lost != nil) {
			t.Errorf("%d, %v", next, lost)
		}
		id = j.ID()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Removed events are a loss for a reader that has not delivered them.
func TestResumeBehindAck(t *testing.T) {
	j := openJournal(t, newDir(t))
	appendTo(t, j, numbered(1, 3)...)
	if err := j.Ack(2); err != nil {
		t.Fatal(err)
	}
	for number, isLoss := range []bool{true, true, false, false, true} { // 4 was never in the journal
		next, lost := j.Resume(Position{j.ID(), uint64(number)})
		if want := max(3, uint64(number%4)+1); next != want || (lost != nil) != isLoss {
			t.Errorf("%d: %d, %v; want %d", number, next, lost, want)
		}
	}
}

// Damaged events are lost, and no others.
func TestDamage(t *testing.T) {
	for name, lostEvents := range map[string][]uint64{"content": {3}, "beginnings": {2, 3}} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			j := openJournal(t, dir)
			appendTo(t, j, numbered(1, 5)...)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			names, err := filepath.Glob(filepath.Join(dir, "*.log"))
			if err != nil || len(names) != 1 {
				t.Fatalf("%v, %v", names, err)
			}
			data, err := os.ReadFile(names[0])
			if err != nil {
				t.Fatal(err)
			}
			begin, end := bytes.Index(data, []byte(`"e3"`)), bytes.Index(data, []byte(`"e3"`))+1
			if name == "beginnings" {
				begin = bytes.LastIndex(data[:bytes.Index(data, []byte(`"e2"`))], []byte("{")) - 10
			}
			clear(data[begin:end])
			if err := os.WriteFile(names[0], data, 0o600); err != nil {
				t.Fatal(err)
			}
			again := openJournal(t, dir)
			ids, lost := read(t, again, 1)
			if len(ids) != 5-len(lostEvents) || ids[0] != "e1" || !slices.Equal(lost, lostEvents) {
				t.Errorf("read %v, lost %v, want %v", ids, lost, lostEvents)
			}
			if err := again.Ack(5); err != nil {
				t.Error(err)
			}
		})
	}
}

func copyOf(t testing.TB, dir string) string {
	t.Helper()
	image := newDir(t)
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return image
}

// The process is killed at any time while events are appended: every event for which Append had returned is there.
func TestCrash(t *testing.T) {
	dir := newDir(t)
	j := openJournal(t, dir)
	appendTo(t, j, "first")
	var mu sync.Mutex
	durable := map[string]bool{"first": true}
	var stop atomic.Bool
	var appending sync.WaitGroup
	for w := range 4 {
		appending.Go(func() {
			for n := 0; !stop.Load(); n++ {
				ids := []string{fmt.Sprintf("%d-%d-a", w, n), fmt.Sprintf("%d-%d-b", w, n)}
				events := [][]byte{event(t, ids[0], 10_000), event(t, ids[1], 10)}
				if err := j.Append(t.Context(), events); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				durable[ids[0]], durable[ids[1]] = true, true
				mu.Unlock()
			}
		})
	}
	for images, appended := 0, 0; (images < 20 || appended < 100) && !t.Failed(); images++ {
		mu.Lock()
		want := maps.Clone(durable)
		mu.Unlock()
		appended = len(want)
		image := openJournal(t, copyOf(t, dir))
		if image.ID() != j.ID() {
			t.Fatalf("identity %s, was %s", image.ID(), j.ID())
		}
		ids, _ := read(t, image, 1)
		for _, id := range ids {
			delete(want, id)
		}
		if len(want) > 0 {
			t.Fatalf("lost %v", slices.Collect(maps.Keys(want)))
		}
		appendTo(t, image, "later")
	}
	stop.Store(true)
	appending.Wait()
}

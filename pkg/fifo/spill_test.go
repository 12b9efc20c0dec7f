package fifo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/segment"
)

// spillTest is a queue of items that records the calls of its functions.
type spillTest struct {
	*Queue[item]
	t    *testing.T
	path string
	stop context.CancelFunc // ends Run
	done chan error         // Run's result

	mu     sync.Mutex
	ids    []int // in the order in which OnSettled reported them
	lost   int
	encode func(item) error // may fail
	log    strings.Builder
}

// spillOptions are options for small items; sizes are those that the items say.
func spillOptions(path string) Options[item] {
	return Options[item]{
		Path: path, MaxItems: 8, Size: itemSize,
		Encode: func(dst []byte, v item) ([]byte, error) {
			data, err := json.Marshal(v)
			return append(dst, data...), err
		},
		Decode:    func(data []byte, _ bool) (v item, err error) { return v, json.Unmarshal(data, &v) },
		Mark:      func(v item) (string, string) { return fmt.Sprint("source", v.Key), fmt.Sprint(v.ID) },
		OnSettled: func([]item) {}, Receipt: func(v item) item { return v }, OnCorrupt: func(Loss) []item { return nil },
		Since: func(item) time.Time { return time.Now() }, Logger: slog.New(slog.DiscardHandler),
	}
}

// openSpill creates a queue. change can modify its options.
func openSpill(t *testing.T, path string, change func(o *Options[item])) *spillTest {
	t.Helper()
	s := &spillTest{t: t, path: path}
	o := spillOptions(path)
	encode := o.Encode
	o.Encode = func(dst []byte, v item) ([]byte, error) {
		s.mu.Lock()
		fail := s.encode
		s.mu.Unlock()
		if fail != nil {
			if err := fail(v); err != nil {
				return dst, err
			}
		}
		return encode(dst, v)
	}
	o.OnSettled = func(items []item) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range items {
			s.ids = append(s.ids, v.ID)
		}
	}
	o.OnCorrupt = func(l Loss) []item {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lost += l.Items(); l.Last == 0 {
			s.lost = -1
		}
		return nil
	}
	o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&s.mu, &s.log}, nil))
	if change != nil {
		change(&o)
	}
	var err error
	if s.Queue, err = New(o); err != nil {
		t.Fatal(err)
	}
	return s
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *strings.Builder
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// start runs Run until end is called or the test ends.
func (s *spillTest) start() *spillTest {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	s.stop, s.done = cancel, make(chan error, 1)
	go func() { s.done <- s.Run(ctx) }()
	s.t.Cleanup(func() {
		if s.done != nil {
			_ = s.end()
		}
	})
	return s
}

// end ends Run and returns its error.
func (s *spillTest) end() error {
	s.t.Helper()
	if s.done == nil {
		s.start()
	}
	s.stop()
	err := <-s.done
	s.done = nil
	return err
}

// abandon lets go of the files as a crash does: nothing more is written.
func (s *spillTest) abandon() {
	if err := s.Queue.log.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// settledIDs returns the ids of the settled items.
func (s *spillTest) settledIDs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

func (s *spillTest) isSpilling() bool {
	s.Queue.mu.Lock()
	defer s.Queue.mu.Unlock()
	return s.spilling
}

// logged returns the log output.
func (s *spillTest) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (s *spillTest) push(from, to int) {
	s.t.Helper()
	for id := from; id <= to; id++ {
		if err := s.Push(s.t.Context(), newItem(id, id%3, 1)); err != nil {
			s.t.Fatalf("Push(%d): %v", id, err)
		}
	}
}

// takeIDs takes and acknowledges n items.
func (s *spillTest) takeIDs(n int) (ids []int) {
	s.t.Helper()
	for len(ids) < n {
		batch := take(s.t, s, n-len(ids), 1<<30)
		for _, v := range batch {
			ids = append(ids, v.ID)
		}
		s.Ack(len(batch))
	}
	return ids
}

func (s *spillTest) wantIDs(what string, got []int, from, to int) {
	s.t.Helper()
	want := []int{}
	for id := from; id <= to; id++ {
		want = append(want, id)
	}
	if diff := cmp.Diff(want, append([]int{}, got...)); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// bubble runs f in a bubble, where time passes only while nothing happens: reading and writing a file is something.
func bubble(t *testing.T, f func(t *testing.T, path string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "q")
	synctest.Test(t, func(t *testing.T) { f(t, path) })
}

// passTime lets time pass in a bubble.
func passTime(d time.Duration) { time.Sleep(d) }

func fileExists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestSpillMemoryMode(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 8)
		s.wantIDs("taken", s.takeIDs(8), 1, 8)
		s.push(9, 16)
		time.Sleep(time.Minute)
		if fileExists(t, path) {
			t.Error("there is a file although everything fits in memory")
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
		s.wantIDs("settled", s.settledIDs(), 1, 16)
		s.wantIDs("taken after the end", s.takeIDs(8), 9, 16)
		s2 := openSpill(t, path, nil).start()
		s2.wantIDs("taken after a restart", s2.takeIDs(8), 9, 16)
	})
}

func TestSpillAndComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 100)
		time.Sleep(time.Second)
		s.wantIDs("settled", s.settledIDs(), 1, 100)
		if diff := cmp.Diff(
			map[string]string{"source0": "99", "source1": "100", "source2": "98"},
			s.Positions(),
		); diff != "" {
			t.Error(diff)
		}
		spill := s.SpillStats()
		if spill.Items != 100 || spill.Bytes < 5000 || spill.FileBytes < spill.Bytes || spill.Errors != 0 ||
			spill.LastErr != "" {
			t.Errorf("%+v", spill)
		}
		if got := s.Stats(); got.Items != 100 || got.Pushed != 100 {
			t.Errorf("%+v", got)
		}
		s.wantIDs("taken", s.takeIDs(100), 1, 100)
		time.Sleep(time.Second)
		if s.isSpilling() {
			t.Error("still spilling, although everything was acknowledged")
		}
		if spill := s.SpillStats(); spill.Items != 0 || spill.Bytes != 0 {
			t.Errorf("%+v", spill)
		}
		s.push(101, 108)
		time.Sleep(time.Second)
		s.wantIDs("settled", s.settledIDs(), 1, 100)
		s.wantIDs("taken", s.takeIDs(8), 101, 108)
		s.wantIDs("settled", s.settledIDs(), 1, 108)
	})
}

// What was taken and not acknowledged when the queue began to spill is written too, and so comes again.
func TestSpillWritesTaken(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 8)
		batch := take(t, s, 9, 9)
		if len(batch) != 4 {
			t.Errorf("took %d items, want half of the bound", len(batch))
		}
		s.Ack(1)
		s.push(9, 20)
		time.Sleep(time.Second)
		s.wantIDs("settled", s.settledIDs(), 1, 20)
		s.abandon()

		s2 := openSpill(t, path, nil).start()
		if diff := cmp.Diff(
			map[string]string{"source0": "18", "source1": "19", "source2": "20"},
			s2.Positions(),
		); diff != "" {
			t.Error(diff)
		}
		s2.push(21, 22)
		s2.wantIDs("after the crash", s2.takeIDs(21), 2, 22)
	})
}

func TestSpillSurvives(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 50)
		s.wantIDs("taken", s.takeIDs(10), 1, 10)
		s.Close()
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take(t.Context(), nil, 100, 100); err == nil || errors.Is(err, ErrClosed) {
			t.Errorf("Take = %v, but items lie on disk", err)
		}

		s2 := openSpill(t, path, nil).start()
		if got := s2.Stats(); got.Items != 40 || got.Pushed != 0 {
			t.Errorf("%+v", got)
		}
		s2.push(51, 70)
		s2.Close()
		s2.wantIDs("after the restart", s2.takeIDs(60), 11, 70)
		if _, err := s2.Take(t.Context(), nil, 1, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("Take = %v", err)
		}
		if err := s2.end(); err != nil {
			t.Fatal(err)
		}

		s3 := openSpill(t, path, nil)
		if got := s3.Stats(); got.Items != 0 || s3.isSpilling() {
			t.Errorf("%+v after everything was acknowledged", got)
		}
		if segments := segmentsOf(t, path); len(segments) > 0 {
			t.Errorf("left on disk: %v", segments)
		}
		if err := s3.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// Positions of sources whose items never went to disk are in the file as well.
func TestSpillMarksOfAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		if err := s.Push(t.Context(), newItem(77, 7, 1)); err != nil {
			t.Fatal(err)
		}
		s.takeIDs(1)
		for id := range 20 {
			if err := s.Push(t.Context(), newItem(id, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if diff := cmp.Diff(map[string]string{"source7": "77", "source1": "19"}, s.Positions()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSpillMemoryBound(t *testing.T) {
	for _, tc := range []struct {
		name             string
		maxItems         int
		maxBytes         int64
		sizes            []int64
		boundIt, boundBy int64
	}{
		{"items", 10, 0, []int64{1}, 10, 0},
		{"bytes", 1000, 100, []int64{1, 7, 20, 50}, 1000, 100},
		{"large items", 1000, 100, []int64{1, 80, 3, 200}, 1000, 400},
		{"least", 2, 0, []int64{1}, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, path string) {
				s := openSpill(t, path, func(o *Options[item]) { o.MaxItems, o.MaxBytes = tc.maxItems, tc.maxBytes }).start()
				check := func() {
					t.Helper()
					checkQueue(t, s.Queue)
					s.Queue.mu.Lock()
					defer s.Queue.mu.Unlock()
					if items, bytes := s.inMemory(); int64(items) > tc.boundIt || tc.boundBy > 0 && bytes > tc.boundBy {
						t.Fatalf("%d items, %d bytes in memory", items, bytes)
					}
				}
				const n = 400
				go func() {
					for id := range n {
						if s.Push(t.Context(), newItem(id, 1, tc.sizes[id%len(tc.sizes)])) != nil {
							return
						}
						check()
					}
				}()
				synctest.Wait()
				for id := 0; id < n; {
					batch := take(t, s, 1+id%17, 150)
					check()
					for _, v := range batch {
						if v.ID != id {
							t.Fatalf("took %d, want %d", v.ID, id)
						}
						id++
					}
					if id%3 == 0 {
						time.Sleep(50 * time.Millisecond)
					}
					s.Ack(len(batch))
					check()
				}
			})
		})
	}
}

func TestSpillDiskBound(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		const bound = 40000
		big := strings.Repeat("x", 3000)
		s := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes = bound }).start()
		const n = 100
		pushed := make(chan int, n)
		go func() {
			for id := range n {
				if s.Push(t.Context(), item{ID: id, Size: 1, Hist: big}) == nil {
					pushed <- id
				}
			}
		}()
		time.Sleep(time.Minute)
		if got := len(pushed); got < 12 || got > 8+13 {
			t.Errorf("%d pushes were let in", got)
		}
		for id := 0; id < n; {
			spill := s.SpillStats()
			if spill.Bytes > bound || spill.Errors > 0 {
				t.Fatalf("%+v", spill)
			}
			for _, got := range s.takeIDs(1) {
				if got != id {
					t.Fatalf("took %d, want %d", got, id)
				}
				id++
			}
		}
		synctest.Wait() // the last push has returned, its goroutine may not have said so
		if got := len(pushed); got != n {
			t.Errorf("%d of %d pushes returned", got, n)
		}
	})
}

// Items that are each larger than the bound on disk lie there one at a time.
func TestSpillDiskBoundLargeItem(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes = 10000 }).start()
		const n = 20
		go func() {
			for id := range n {
				if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: strings.Repeat("y", 20000)}); err != nil {
					t.Errorf("Push: %v", err)
				}
			}
		}()
		time.Sleep(time.Minute)
		if spill := s.SpillStats(); spill.Items != 1 || spill.Bytes < 20000 || spill.Bytes > 21000 {
			t.Errorf("%+v", spill)
		}
		var got []int
		for range n {
			got = append(got, s.takeIDs(1)...)
			time.Sleep(time.Second)
			if bytes := s.SpillStats().Bytes; bytes > 21000 {
				t.Errorf("%d bytes on disk", bytes)
			}
		}
		s.wantIDs("taken", got, 0, n-1)
	})
}

// At the end, all items are written, even beyond the bound on disk.
func TestSpillDiskBoundAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes = 10 }).start()
		s.push(1, 8)
		if err := s.Push(ended(t), newItem(9, 9, 1)); err == nil {
			t.Error("a full queue took an item up at once")
		}
		time.Sleep(time.Second)
		s.wantIDs("settled", s.settledIDs(), 1, 1)
		waiting := s.pushLater(9, 9)
		s.Lift()
		synctest.Wait()
		s.push(10, 10)
		if !waiting.Load() {
			t.Error("a push still waits")
		}
		if err := s.end(); err != nil {
			t.Errorf("Run = %v", err)
		}
		s.wantIDs("settled", s.settledIDs(), 1, 10)
		s2 := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes = 10 }).start()
		s2.wantIDs("taken after a restart", s2.takeIDs(10), 1, 10)
	})
}

// An item that is acknowledged while it is written is settled once.
func TestSpillAckDuringCommit(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil)
		s.push(1, 8)
		take(t, s, 3, 9)
		s.encode = func(v item) error {
			if v.ID == 5 && s.Stats().Taken > 0 {
				s.Ack(3)
			}
			return nil
		}
		s.start()
		s.push(9, 20)
		time.Sleep(time.Second)
		s.wantIDs("settled", s.settledIDs(), 1, 20)
		s.wantIDs("taken", s.takeIDs(17), 4, 20)
	})
}

func TestSpillEncodeFails(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil)
		s.encode = func(v item) error {
			if v.ID == 5 {
				return errors.New("not this one")
			}
			return nil
		}
		s.start()
		done := make(chan bool)
		go func() {
			s.push(1, 20)
			close(done)
		}()
		time.Sleep(time.Minute)
		s.wantIDs("settled", s.settledIDs(), 1, 4)
		if spill := s.SpillStats(); spill.Errors == 0 || !strings.Contains(spill.LastErr, "not this one") {
			t.Errorf("%+v", spill)
		}
		got := s.takeIDs(5) // then it need not be written any more
		time.Sleep(time.Minute)
		<-done
		if lastErr := s.SpillStats().LastErr; lastErr != "" {
			t.Errorf("still %q", lastErr)
		}
		got = append(got, s.takeIDs(15)...)
		s.wantIDs("taken", got, 1, 20)
		if n := strings.Count(s.logged(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors in the log, want one for the whole time:\n%s", n, s.logged())
		}
	})
}

// What is acknowledged is removed from disk while the queue spills, and all of it when nothing is needed any more;
// the positions stay for what is written next.
func TestSpillGivesRoomBack(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		const disk, segment = 4 << 20, 4 << 20 / segmentPart
		big := strings.Repeat("x", 20000)
		s := openSpill(t, path, func(o *Options[item]) { o.MaxDiskBytes = disk }).start()
		s.push(1, 1)
		s.takeIDs(1)
		for id := 2; id <= 101; id++ {
			if err := s.Push(t.Context(), item{ID: id, Size: 1, Hist: big}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		before := s.SpillStats().FileBytes
		s.takeIDs(50)
		time.Sleep(time.Second)
		half := s.SpillStats().FileBytes
		s.takeIDs(50)
		time.Sleep(time.Second)
		after := s.SpillStats().FileBytes
		if segments := segmentsOf(t, path); before < 2000000 ||
			half > before/2+2*segment || // a segment is removed as a whole, and may be larger by one event
			after > 5000 || len(segments) > 0 {
			t.Errorf("on disk were %d bytes, then %d, then %d: %v", before, half, after, segments)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		for id := 1001; id <= 1050; id++ {
			if err := s.Push(t.Context(), newItem(id, 0, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		s.abandon()
		s2 := openSpill(t, path, nil).start()
		if diff := cmp.Diff(map[string]string{"source0": "1050", "source1": "1"}, s2.Positions()); diff != "" {
			t.Error(diff)
		}
		s2.wantIDs("taken", s2.takeIDs(50), 1001, 1050)
	})
}

// segmentsOf returns the files that contain items.
func segmentsOf(t *testing.T, path string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSpillOptionErrors(t *testing.T) {
	ok := spillOptions(filepath.Join(t.TempDir(), "q"))
	for name, change := range map[string]func(*Options[item]){
		"below a file": func(o *Options[item]) {
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			o.Path = filepath.Join(file, "q")
		},
	} {
		o := ok
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// boundedLog is a log that checks how much is appended at a time.
type boundedLog struct {
	Log
	t      *testing.T
	closed bool
}

func (l *boundedLog) Append(b *segment.Batch, positions map[string]string) error {
	if b.Bytes() > logBytes+40<<10 {
		l.t.Errorf("a batch of %d bytes", b.Bytes())
	}
	return l.Log.Append(b, positions)
}

func (l *boundedLog) Close() error {
	l.closed = true
	return l.Log.Close()
}

// A queue that is given a log writes to it in batches of about 1 MiB, and closes it.
func TestSpillToALog(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		log := &boundedLog{t: t}
		open := func() *spillTest {
			segments, err := segment.Open(path, segment.DefaultBytes, slog.New(slog.DiscardHandler),
				func(damage error) { t.Fatal(damage) })
			if err != nil {
				t.Fatal(err)
			}
			log.Log = segments
			return openSpill(t, path, func(o *Options[item]) {
				o.Path, o.Log, o.MaxItems, o.MaxDiskBytes = "", log, 200, 8<<20
			}).start()
		}
		s := open()
		big := strings.Repeat("x", 20000)
		for id := 1; id <= 250; id++ {
			if err := s.Push(t.Context(), item{ID: id, Size: 20000, Hist: big}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if spill := s.SpillStats(); spill.Items != 250 || spill.Bytes < 5_000_000 || spill.FileBytes != 0 {
			t.Errorf("%+v", spill)
		}
		if err := s.end(); err != nil || !log.closed {
			t.Errorf("%v, closed: %t", err, log.closed)
		}
		s = open()
		s.wantIDs("taken", s.takeIDs(250), 1, 250)
	})
}

// Two queues must not use one file.
func TestSpillFileInUse(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		s := openSpill(t, path, nil).start()
		s.push(1, 20)
		time.Sleep(time.Second)
		if _, err := New(spillOptions(path)); err == nil {
			t.Error("a second queue opened the file")
		}
		s.wantIDs("taken", s.takeIDs(20), 1, 20)
	})
}

// Decode learns whether an item is left: an earlier process has pushed it, or it was pushed before Restore.
func TestSpillTellsWhatWasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, path string) {
		left := map[int]bool{} // by item, of those that were read from disk
		open := func() *spillTest {
			return openSpill(t, path, func(o *Options[item]) {
				decode := o.Decode
				o.Decode = func(data []byte, isLeft bool) (item, error) {
					v, err := decode(data, isLeft)
					left[v.ID] = isLeft
					return v, err
				}
			}).start()
		}
		// expect takes items. Those that were read from disk, at least one, are left if their number is at most last.
		expect := func(s *spillTest, n, last int) {
			t.Helper()
			clear(left)
			s.takeIDs(n)
			if len(left) == 0 {
				t.Error("nothing was read from disk")
			}
			for id, isLeft := range left {
				if isLeft != (id <= last) {
					t.Errorf("item %d: left %v", id, isLeft)
				}
			}
		}
		s := open()
		s.push(1, 20)
		expect(s, 10, 0)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		s = open()
		s.push(21, 40)
		expect(s, 20, 20)
		s.Restore()
		passTime(time.Second)
		expect(s, 10, 40)
	})
}

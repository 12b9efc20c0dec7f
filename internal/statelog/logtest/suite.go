package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// patience is the timeout of every test in the suite.
const patience = 3 * time.Minute

// Harness describes an implementation of statelog.Log to the suite.
type Harness struct {
	// New creates an empty log and returns a function that opens it as another process with each call. The suite closes
	// what it opens.
	New func(t *testing.T) (open func(t *testing.T) statelog.Log)
	// TooLarge is the size of a record that the broker never accepts. If it is 0, nothing is too large.
	TooLarge int
}

// Run runs the suite. Every test is a subtest with a new log.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"Empty", testEmpty},
		{"AppendAndRead", testAppendAndRead},
		{"ReadStops", testReadStops},
		{"TwoWriters", testTwoWriters},
		{"StaleWriter", testStaleWriter},
		{"FenceAfterConflict", testFenceAfterConflict},
		{"RepeatAfterTimeout", testRepeatAfterTimeout},
		{"FenceAfterTimeout", testFenceAfterTimeout},
		{"Truncate", testTruncate},
		{"TruncateEverything", testTruncateEverything},
		{"TooLarge", testTooLarge},
		{"MaxRecord", testMaxRecord},
		{"Follow", testFollow},
		{"CancelWait", testCancelWait},
		{"ReadBehindTheEnd", testReadBehindTheEnd},
		{"Terms", testTerms},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			test.run(t, &suite{Harness: h, ctx: ctx, open: h.New(t)})
		})
	}
}

type suite struct {
	Harness

	ctx  context.Context // of one test
	open func(t *testing.T) statelog.Log
}

// process opens the log as another process.
func (s *suite) process(t *testing.T) statelog.Log {
	t.Helper()
	l := s.open(t)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// writer opens the log as another process and fences all earlier ones.
func (s *suite) writer(t *testing.T) (l statelog.Log, end int64) {
	t.Helper()
	l = s.process(t)
	return l, s.fence(t, l)
}

func (s *suite) fence(t *testing.T, l statelog.Log) int64 {
	t.Helper()
	end, err := l.Fence(s.ctx)
	if err != nil {
		t.Fatalf("Fence: %v", err)
	}
	return end
}

// append appends records and returns the end.
func (s *suite) append(t *testing.T, l statelog.Log, after int64, records ...string) int64 {
	t.Helper()
	for _, r := range records {
		end, err := l.Append(s.ctx, after, []byte(r))
		if err != nil {
			t.Fatalf("Append of %.20q: %v", r, err)
		}
		if end <= after {
			t.Fatalf("Append after %d returned %d", after, end)
		}
		after = end
	}
	return after
}

func (s *suite) wantConflict(t *testing.T, l statelog.Log, after int64, record string) {
	t.Helper()
	if _, err := l.Append(s.ctx, after, []byte(record)); !errors.Is(err, statelog.ErrConflict) {
		t.Fatalf("Append of %q: %v, want ErrConflict", record, err)
	}
}

// read returns the records from a position on, their positions, and the end.
func (s *suite) read(t *testing.T, l statelog.Log, from int64) (records []string, at []int64, end int64) {
	t.Helper()
	end, err := l.Read(s.ctx, from, func(position int64, record []byte) error {
		if position < from || len(at) > 0 && position <= at[len(at)-1] {
			return fmt.Errorf("the record at position %d is out of order: read from %d, earlier positions %v",
				position, from, at)
		}
		records, at = append(records, string(record)), append(at, position)
		return nil
	})
	if err != nil {
		t.Fatalf("Read from %d: %v", from, err)
	}
	if len(at) > 0 && end <= at[len(at)-1] {
		t.Fatalf("Read returned the end %d, the last record is at %d", end, at[len(at)-1])
	}
	return records, at, end
}

// wantRecords checks what the log contains for a process that opens it.
func (s *suite) wantRecords(t *testing.T, want ...string) {
	t.Helper()
	if got, _, _ := s.read(t, s.process(t), 0); !slices.Equal(got, want) {
		t.Fatalf("the log contains %.60q, want %.60q", got, want)
	}
}

func testEmpty(t *testing.T, s *suite) {
	reader := s.process(t)
	if records, _, end := s.read(t, reader, 0); len(records) != 0 || end < 0 {
		t.Errorf("a new log has the records %q and ends at %d", records, end)
	}
	l, fenced := s.writer(t)
	if _, _, end := s.read(t, l, 0); end < fenced {
		t.Errorf("Fence returned %d, and Read later %d", fenced, end)
	}
	s.append(t, l, fenced, "first")
	s.wantRecords(t, "first")
}

func testAppendAndRead(t *testing.T, s *suite) {
	l, after := s.writer(t)
	want := []string{"a", "\x00\xff\n", strings.Repeat("long ", 10_000), "a"}
	ends := []int64{}
	for _, r := range want {
		after = s.append(t, l, after, r)
		ends = append(ends, after)
	}
	reader := s.process(t)
	records, at, end := s.read(t, reader, 0)
	if !slices.Equal(records, want) {
		t.Fatalf("read %.30q", records)
	}
	for n := range want {
		if at[n] >= ends[n] || n > 0 && at[n] < ends[n-1] {
			t.Errorf("record %d is at %d, appended between %v", n, at[n], ends)
		}
		if from, _, _ := s.read(t, reader, at[n]); !slices.Equal(from, want[n:]) {
			t.Errorf("Read from record %d: %.30q", n, from)
		}
		if from, _, _ := s.read(t, reader, ends[n]); !slices.Equal(from, want[n+1:]) {
			t.Errorf("Read from the end of record %d: %.30q", n, from)
		}
		if from, _, _ := s.read(t, reader, at[n]+1); !slices.Equal(from, want[n+1:]) {
			t.Errorf("Read from behind record %d: %.30q", n, from)
		}
	}
	if s.append(t, l, end, "last") <= end { // the end that Read returned can be passed to Append
		t.Error("Append returned an earlier end than Read")
	}
	s.wantRecords(t, append(want, "last")...)
}

func testReadStops(t *testing.T, s *suite) {
	l, after := s.writer(t)
	s.append(t, l, after, "1", "2", "3")
	enough := errors.New("enough")
	for range 3 { // a Read that was stopped does not affect the next one
		calls := 0
		_, err := l.Read(s.ctx, 0, func(int64, []byte) error {
			if calls++; calls == 2 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || calls != 2 {
			t.Errorf("Read returned %v after %d calls", err, calls)
		}
	}
	s.wantRecords(t, "1", "2", "3")
}

// Two processes have fenced. At most one of them appends, the earlier or the later one, and no record is lost.
func testTwoWriters(t *testing.T, s *suite) {
	for _, laterFirst := range []bool{false, true} {
		one, afterOne := s.writer(t)
		afterOne = s.append(t, one, afterOne, "before")
		other, afterOther := s.writer(t)
		if laterFirst {
			s.append(t, other, afterOther, "other")
			s.wantConflict(t, one, afterOne, "one")
		} else if _, err := one.Append(s.ctx, afterOne, []byte("one")); err == nil {
			s.wantConflict(t, other, afterOther, "other")
			s.wantRecords(t, "before", "one")
		} else if errors.Is(err, statelog.ErrConflict) {
			s.append(t, other, afterOther, "other")
		} else {
			t.Fatalf("Append: %v", err)
		}
		records, _, _ := s.read(t, s.process(t), 0)
		if len(records) != 2 || records[0] != "before" {
			t.Errorf("the log contains %q", records)
		}
		s.open = s.New(t)
	}
}

// A process that does not know that it has a successor is in the middle of its records.
func testStaleWriter(t *testing.T, s *suite) {
	stale, old := s.writer(t)
	old = s.append(t, stale, old, "1", "2", "3")
	l, end := s.writer(t)
	end = s.append(t, l, end, "4")
	s.wantConflict(t, stale, old, "stale")
	end = s.append(t, l, end, "5")
	s.wantConflict(t, stale, old, "stale")
	s.wantConflict(t, stale, old, "another")
	s.append(t, l, end, "6")
	s.wantRecords(t, "1", "2", "3", "4", "5", "6")
}

// A process that is fenced can fence the other one.
func testFenceAfterConflict(t *testing.T, s *suite) {
	one, afterOne := s.writer(t)
	afterOne = s.append(t, one, afterOne, "1")
	other, afterOther := s.writer(t)
	afterOther = s.append(t, other, afterOther, "2")
	s.wantConflict(t, one, afterOne, "stale")
	s.fence(t, one)
	records, _, end := s.read(t, one, afterOne)
	if !slices.Equal(records, []string{"2"}) {
		t.Fatalf("read %q", records)
	}
	end = s.append(t, one, end, "3")
	s.wantConflict(t, other, afterOther, "stale")
	s.append(t, one, end, "4")
	s.wantRecords(t, "1", "2", "3", "4")
}

func testTooLarge(t *testing.T, s *suite) {
	if s.TooLarge == 0 {
		t.Skip("the destination accepts records of any size")
	}
	l, after := s.writer(t)
	after = s.append(t, l, after, "1")
	for range 2 {
		_, err := l.Append(s.ctx, after, bytes.Repeat([]byte("x"), s.TooLarge))
		if !errors.Is(err, statelog.ErrTooLarge) {
			t.Fatalf("Append of %d bytes: %v, want ErrTooLarge", s.TooLarge, err)
		}
	}
	s.append(t, l, after, "2")
	s.wantRecords(t, "1", "2")
}

// A record that has the maximum size is accepted, or is reported as too large.
func testMaxRecord(t *testing.T, s *suite) {
	l, after := s.writer(t)
	if l.MaxRecord() <= 0 {
		t.Skip("the destination does not tell")
	}
	record := bytes.Repeat([]byte("x"), l.MaxRecord())
	end, err := l.Append(s.ctx, after, record)
	if errors.Is(err, statelog.ErrTooLarge) {
		return
	}
	if err != nil {
		t.Fatalf("Append of %d bytes: %v", len(record), err)
	}
	s.append(t, l, end, "2")
	s.wantRecords(t, string(record), "2")
}

// A process reads while another one appends.
func testFollow(t *testing.T, s *suite) {
	const records = 50
	l, after := s.writer(t)
	reader := s.process(t)
	failed := make(chan error, 1)
	go func() {
		end, err := after, error(nil)
		for n := 0; n < records && err == nil; n++ {
			end, err = l.Append(s.ctx, end, []byte(fmt.Sprint(n)))
		}
		failed <- err
	}()
	next := int64(0)
	for n := 0; n < records; {
		if err := reader.Wait(s.ctx, next); err != nil {
			if s.ctx.Err() != nil {
				t.Errorf("Wait: %v", err)
				break
			}
			t.Logf("Wait: %v", err) // a cluster may not answer for a moment, and a standby continues
		}
		got, _, end := s.read(t, reader, next)
		for _, r := range got {
			if r != fmt.Sprint(n) {
				t.Errorf("read %q as record %d", r, n)
			}
			n++
		}
		next = max(next, end)
	}
	if err := <-failed; err != nil {
		t.Errorf("Append: %v", err)
	}
}

// Wait ends with its context, and everything works after that.
func testCancelWait(t *testing.T, s *suite) {
	l, after := s.writer(t)
	after = s.append(t, l, after, "1")
	ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := l.Wait(ctx, after)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("Wait returned %v, %v after its context had ended", err, took)
	}
	canceled, stop := context.WithCancel(s.ctx)
	stop()
	_, errFence := l.Fence(canceled)
	_, errRead := l.Read(canceled, 0, func(int64, []byte) error { return nil })
	if errFence == nil || errRead == nil {
		t.Errorf("with a canceled context, Fence returned %v and Read %v", errFence, errRead)
	}
	s.append(t, l, s.fence(t, l), "2")
	s.wantRecords(t, "1", "2")
}

// Read from a position after the end returns the end. This shows that the position is from a log that was deleted and
// created again.
func testReadBehindTheEnd(t *testing.T, s *suite) {
	l, after := s.writer(t)
	after = s.append(t, l, after, "1", "2")
	records, _, end := s.read(t, s.process(t), after+1000)
	if len(records) != 0 || end < after || end >= after+1000 {
		t.Errorf("read %q from behind the end, which is %d, not %d", records, after, end)
	}
}

package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// interrupted appends a record with a context that ends at different times.
func (s *suite) interrupted(t *testing.T, l statelog.Log, n int, after int64, record string) (end int64, err error) {
	t.Helper()
	timeout := time.Duration(n) * time.Duration(n) * 20 * time.Microsecond
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	end, err = l.Append(ctx, after, []byte(record))
	if errors.Is(err, statelog.ErrConflict) || errors.Is(err, statelog.ErrTooLarge) {
		t.Fatalf("Append that was interrupted after %v: %v", timeout, err)
	}
	return end, err
}

// If a record is appended again after an uncertain result, the log contains it once.
func testRepeatAfterTimeout(t *testing.T, s *suite) {
	l, after := s.writer(t)
	var want []string
	for n := range 20 {
		r := fmt.Sprint("record ", n)
		want = append(want, r)
		end, err := s.interrupted(t, l, n, after, r)
		for again := n; err != nil && again < n+3; again++ {
			end, err = s.interrupted(t, l, again, after, r)
		}
		if err != nil {
			end = s.append(t, l, after, r)
		}
		after = end
	}
	s.wantRecords(t, want...)
}

// After an uncertain result, a process calls Fence and reads the records that it has written. A record that arrives
// later is a conflict, or does not arrive.
func testFenceAfterTimeout(t *testing.T, s *suite) {
	l, after := s.writer(t)
	var want []string
	for n := range 12 {
		r := fmt.Sprint("uncertain ", n)
		if end, err := s.interrupted(t, l, n, after, r); err == nil {
			after, want = end, append(want, r)
			continue
		}
		for {
			after = s.fence(t, l)
			records, _, end := s.read(t, l, 0)
			if len(records) == len(want)+1 && records[len(want)] == r {
				want = append(want, r)
			}
			if !slices.Equal(records, want) {
				t.Fatalf("read %q, want %q, perhaps with %q", records, want, r)
			}
			marker := fmt.Sprint("after ", n)
			end, err := l.Append(s.ctx, max(end, after), []byte(marker))
			if err == nil {
				after, want = end, append(want, marker)
				break
			}
			if !errors.Is(err, statelog.ErrConflict) {
				t.Fatalf("Append: %v", err)
			}
		}
	}
	s.wantRecords(t, want...)
}

package logtest

import (
	"slices"
	"testing"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// truncate removes the records before a position, and waits until they are gone. During that time, all other records
// can be read.
func (s *suite) truncate(t *testing.T, l statelog.Log, before int64, left ...string) {
	t.Helper()
	if err := l.Truncate(s.ctx, before); err != nil {
		t.Fatalf("Truncate: %v", err)
	}
	for {
		records, _, _ := s.read(t, l, 0)
		if slices.Equal(records, left) {
			return
		}
		if len(records) < len(left) || !slices.Equal(records[len(records)-len(left):], left) {
			t.Fatalf("truncated to %q, %q are left", left, records)
		}
		if s.ctx.Err() != nil {
			t.Fatalf("%q are not removed", records[:len(records)-len(left)])
		}
	}
}

func testTruncate(t *testing.T, s *suite) {
	l, after := s.writer(t)
	after = s.append(t, l, after, "1", "2", "3", "4", "5")
	_, at, _ := s.read(t, l, 0)
	s.truncate(t, l, at[2], "3", "4", "5")
	for _, from := range []int64{0, at[0], at[1], at[2]} {
		if records, positions, _ := s.read(t, l, from); !slices.Equal(records, []string{"3", "4", "5"}) ||
			!slices.Equal(positions, at[2:]) {
			t.Errorf("Read from %d: %q at %v, before at %v", from, records, positions, at)
		}
	}
	s.truncate(t, l, at[1], "3", "4", "5") // there is nothing to remove
	s.append(t, l, after, "6")
	s.wantRecords(t, "3", "4", "5", "6")
}

// Positions do not start from the beginning again when no record is left.
func testTruncateEverything(t *testing.T, s *suite) {
	l, after := s.writer(t)
	after = s.append(t, l, after, "1", "2")
	s.truncate(t, l, after)
	if _, _, end := s.read(t, l, 0); end < after {
		t.Errorf("the end was %d and is %d", after, end)
	}
	after = s.append(t, l, after, "3")
	s.truncate(t, l, after)
	other, fenced := s.writer(t)
	if fenced < after {
		t.Errorf("the end was %d, Fence returned %d", after, fenced)
	}
	s.append(t, other, fenced, "4")
	s.wantConflict(t, l, after, "stale")
	for _, from := range []int64{0, after} {
		if records, _, _ := s.read(t, l, from); !slices.Equal(records, []string{"4"}) {
			t.Errorf("Read from %d: %q", from, records)
		}
	}
}

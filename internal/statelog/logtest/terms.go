package logtest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// commit appends a row to the log and to the copy.
func (s *suite) commit(t *testing.T, w *statelog.Writer, c *Copy, key string) {
	t.Helper()
	value := []byte(key + strings.Repeat(" value", 1000))
	pairs := []statelog.Pair{{Bucket: "rows", Source: "pods", Key: key, Value: value}}
	at, err := w.Append(s.ctx, pairs)
	if err == nil {
		err = c.Apply(pairs, at)
	}
	if err != nil {
		t.Fatalf("Append of %s: %v", key, err)
	}
}

func wantSame(t *testing.T, name string, got, want *Copy) {
	t.Helper()
	if got.Point().Partial || !maps.Equal(got.Content(), want.Content()) {
		t.Errorf("%s has %d values at %+v, want %d values at %+v", name, len(got.Content()), got.Point(),
			len(want.Content()), want.Point())
	}
}

// Writers and followers use the log: commits, a pass, two changes of the leader, and processes with and without a copy.
func testTerms(t *testing.T, s *suite) {
	first := NewCopy(Content{{Bucket: "rows", Source: "pods", Key: "old"}: "from a file"})
	one := statelog.NewWriter(s.process(t), first, statelog.Claim{Installation: "i", Holder: "one"})
	standby := &Copy{}
	follower := statelog.NewFollower(s.process(t), standby, statelog.Claim{Installation: "i"})
	claim := func(w *statelog.Writer) {
		t.Helper()
		if err := w.Claim(s.ctx, false); err != nil {
			t.Fatalf("Claim: %v", err)
		}
	}
	follow := func() {
		t.Helper()
		if err := follower.Read(s.ctx); err != nil {
			t.Fatalf("Read: %v", err)
		}
	}
	claim(one)
	for n, more := 0, true; more; n++ {
		var err error
		if more, err = one.Refresh(s.ctx); err != nil {
			t.Fatalf("Refresh: %v", err)
		}
		s.commit(t, one, first, fmt.Sprint("a", n))
		follow()
	}
	wantSame(t, "the standby", standby, first)

	second := &Copy{}
	other := statelog.NewWriter(s.process(t), second, statelog.Claim{Installation: "i", Holder: "other"})
	claim(other)
	wantSame(t, "the second leader", second, first)
	s.commit(t, other, second, "b")
	if _, err := one.Append(s.ctx, nil); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("the first leader: %v, want ErrConflict", err)
	}
	claim(one)
	wantSame(t, "the first leader", first, second)
	s.commit(t, one, first, "c")
	if complete, err := one.Check(s.ctx); err != nil || !complete {
		t.Errorf("Check: %v, %v", complete, err)
	}
	follow()
	wantSame(t, "the standby", standby, first)
	if standby.Resets != 1 || follower.Behind() != 4 {
		t.Errorf("the standby was %d commits behind, and was emptied %d times", follower.Behind(), standby.Resets)
	}

	foreign := statelog.NewWriter(s.process(t), &Copy{}, statelog.Claim{Installation: "another"})
	if err := foreign.Claim(s.ctx, true); !errors.Is(err, statelog.ErrForeign) {
		t.Errorf("another installation: %v, want ErrForeign", err)
	}
	// Everything is removed.
	if err := one.Sync(s.ctx); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	l, end := s.writer(t)
	s.truncate(t, l, end)
	if err := one.Claim(s.ctx, true); err != nil || one.Problem() == nil {
		t.Fatalf("Claim of a log that is empty: %v, problem %v", err, one.Problem())
	}
	for more := true; more; {
		var err error
		if more, err = one.Refresh(s.ctx); err != nil {
			t.Fatalf("Refresh: %v", err)
		}
	}
	last := &Copy{}
	if err := statelog.NewFollower(s.process(t), last, statelog.Claim{}).Read(s.ctx); err != nil {
		t.Fatalf("Read: %v", err)
	}
	wantSame(t, "a reader after the log was emptied", last, first)
}

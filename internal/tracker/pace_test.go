package tracker

import (
	"testing"
	"time"
)

func TestCommitPace(t *testing.T) {
	p := newCommitPace()
	check := func(rows int, since time.Duration, want bool) {
		t.Helper()
		if p.due(rows, since) != want {
			t.Errorf("%d rows after %s: %t", rows, since, !want)
		}
	}
	check(0, commitInterval, true)
	check(2500, commitInterval, true)
	check(5000, commitInterval, false)
	check(5000, 2*commitInterval, true)
	check(8000, commitInterval, false)
	check(8192, commitInterval, true) // 16 MiB, as long as nothing better is known
	p.learn(999, 1, time.Hour)
	check(2500, commitInterval, true)
	p.learn(1000, 1000*100, 50*time.Millisecond)
	check(500, commitInterval, true)
	check(501, commitInterval, false)
	check(100_000, 3*commitInterval, false)
	check(100_000, maxCommitInterval, true)
	check(maxCommitBytes/100+1, commitInterval, true)
}

package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// looks lets a pace run for a while of fake time and returns when it looked, since the start. complete and watched are
// asked before each pause; changes is run beside it.
func looks(
	t *testing.T,
	lasting time.Duration,
	complete func(look int) bool,
	watched bool,
	changes func(chan<- struct{}),
) []time.Duration {
	t.Helper()
	var at []time.Duration
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lasting)
		defer cancel()
		start := time.Now()
		signals := make(chan struct{}, 1)
		go changes(signals)
		var p pace
		for p.wait(ctx, signals, complete(len(at)), watched) {
			at = append(at, time.Since(start))
		}
		if took := time.Since(start); took != lasting {
			t.Errorf("ended after %s, and its context after %s", took, lasting)
		}
	})
	return at
}

func always(complete bool) func(int) bool { return func(int) bool { return complete } }

func signal(changes chan<- struct{}) {
	select {
	case changes <- struct{}{}:
	default:
	}
}

func TestPace(t *testing.T) {
	const second = time.Second
	quiet := func(chan<- struct{}) {}
	changeAt := func(times ...time.Duration) func(chan<- struct{}) {
		return func(changes chan<- struct{}) {
			start := time.Now()
			for _, at := range times {
				time.Sleep(at - time.Since(start))
				signal(changes)
			}
		}
	}
	const ms = time.Millisecond
	for _, tt := range []struct {
		name     string
		lasting  time.Duration
		complete func(int) bool
		watched  bool
		changes  func(chan<- struct{})
		want     []time.Duration
	}{
		{
			name: "all is known and changes are seen", lasting: 11 * time.Minute, complete: always(true), watched: true, changes: quiet,
			want: []time.Duration{5 * time.Minute, 10 * time.Minute},
		}, {
			name: "changes are not seen", lasting: 70 * second, complete: always(true), changes: quiet,
			want: []time.Duration{30 * second, 60 * second},
		}, {
			name: "failing", lasting: 100 * second, complete: always(false), watched: true, changes: quiet,
			want: []time.Duration{2 * second, 6 * second, 14 * second, 30 * second, 60 * second, 90 * second},
		}, {
			name: "failing again after a success", lasting: 35 * second, complete: func(look int) bool { return look == 2 }, changes: quiet,
			want: []time.Duration{2 * second, 6 * second},
		}, {
			name: "after a change, a few times", lasting: 60 * second, complete: always(true), watched: true, changes: changeAt(second),
			want: []time.Duration{1200 * ms, 2200 * ms, 5200 * ms, 14200 * ms},
		}, {
			name: "a change hastens a look that waits for a failure", lasting: 20 * second, complete: always(false), watched: true, changes: changeAt(second),
			want: []time.Duration{1200 * ms, 2200 * ms, 5200 * ms, 14200 * ms, 18200 * ms},
		}, {
			name: "changes close together are one", lasting: 40 * second, complete: always(true), watched: true, changes: changeAt(second, second+50*ms, second+150*ms),
			want: []time.Duration{1200 * ms, 2200 * ms, 5200 * ms, 14200 * ms},
		}, {
			name: "a later change starts over, a second after it", lasting: 40 * second, complete: always(true), watched: true, changes: changeAt(second, 6*second),
			want: []time.Duration{1200 * ms, 2200 * ms, 5200 * ms, 7 * second, 8 * second, 11 * second, 20 * second},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := looks(t, tt.lasting, tt.complete, tt.watched, tt.changes)
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("looks (-want +got):\n%s", diff)
			}
		})
	}
}

// However many changes there are and for however long, there is about one look a second.
func TestPaceInAStorm(t *testing.T) {
	const storm, end = time.Minute, 90 * time.Second
	got := looks(t, end, always(true), true, func(changes chan<- struct{}) {
		for start := time.Now(); time.Since(start) < storm; time.Sleep(time.Millisecond) {
			signal(changes)
		}
	})
	during, last := 0, time.Duration(0)
	for _, at := range got {
		if at <= storm {
			during++
		}
		last = at
	}
	if during < 50 || during > 62 {
		t.Errorf("%d looks in a storm of %s", during, storm)
	}
	if after := len(got) - during; after < 3 || after > 4 || last < storm+10*time.Second {
		t.Errorf("%d looks after the storm, the last one at %s", after, last)
	}
}

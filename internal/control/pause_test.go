package control

import (
	"path/filepath"
	"testing"
	"time"
)

// What StorePaused stores is known to the next process, and one sink does not affect another.
func TestPausedSince(t *testing.T) {
	state := t.TempDir()
	want := func(sink string, paused bool) {
		t.Helper()
		since, err := PausedSince(state, sink)
		if err != nil || since.IsZero() == paused || paused && time.Since(since).Abs() > time.Minute {
			t.Errorf("%s: paused since %s, %v", sink, since, err)
		}
	}
	for _, paused := range []bool{false, true, true, false} {
		if err := StorePaused(state, "a", paused); err != nil {
			t.Fatal(err)
		}
		want("a", paused)
		want("b", false)
	}
	if err := StorePaused(filepath.Join(state, "none"), "a", true); err == nil {
		t.Error("stored in a directory that does not exist")
	}
	if _, err := PausedSince(state, string([]byte{0})); err == nil {
		t.Error("a file that cannot be examined counts as absent")
	}
}

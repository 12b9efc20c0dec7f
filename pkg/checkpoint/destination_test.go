package checkpoint

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Destinations and pauses are stored without a commit, survive a restart, and are removed with their sinks.
func TestDestinations(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	if err := s.BeginCluster("k1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(nil, map[string]string{"live": "f", "audit": "f"}, nil); err != nil {
		t.Fatal(err)
	}
	for sink, name := range map[string]string{"live": "stream A", "audit": "topic t"} {
		if err := s.SetDestination(sink, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetDestination("live", "stream B"); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for _, sink := range []string{"live", "audit"} {
		if err := s.SetPaused(sink, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if seen, err := Peek(
		folder,
	); err != nil ||
		cmp.Diff(map[string]string{"live": "stream B", "audit": "topic t"}, seen.Destinations) != "" {
		t.Errorf("Peek: %v, %v", seen.Destinations, err)
	} else if len(seen.Paused) != 2 || !seen.Paused["live"].Equal(at) {
		t.Errorf("Peek: paused %v, want %v", seen.Paused, at)
	}
	s = open(t, folder)
	if s.Destination("live") != "stream B" || s.Destination("audit") != "topic t" || s.Destination("other") != "" {
		t.Errorf("%q and %q", s.Destination("live"), s.Destination("audit"))
	}
	if !s.PausedSince("live").Equal(at) || !s.PausedSince("audit").Equal(at) || !s.PausedSince("other").IsZero() {
		t.Errorf("paused since %v and %v", s.PausedSince("live"), s.PausedSince("audit"))
	}
	if err := s.Commit(nil, map[string]string{"live": "f"}, nil); err != nil {
		t.Fatal(err)
	}
	if !s.PausedSince("live").Equal(at) || !s.PausedSince("audit").IsZero() {
		t.Errorf("after a sink was removed: paused since %v and %v", s.PausedSince("live"), s.PausedSince("audit"))
	}
	if err := s.SetPaused("live", time.Time{}); err != nil || len(s.noted().Paused) > 0 {
		t.Errorf("resumed: paused since %v, %v", s.PausedSince("live"), err)
	}
	if s.Destination("live") != "stream B" || s.Destination("audit") != "" {
		t.Errorf("after a sink was removed: %q and %q", s.Destination("live"), s.Destination("audit"))
	}
	if err := s.BeginCluster("k2"); err != nil {
		t.Fatal(err)
	}
	if s.Destination("live") != "" {
		t.Error("the checkpoint of another cluster has the destination")
	}
}

package checkpoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Destinations are stored without a commit, survive a restart, and are removed with their sinks.
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
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if seen, err := Peek(
		folder,
	); err != nil ||
		cmp.Diff(map[string]string{"live": "stream B", "audit": "topic t"}, seen.Destinations) != "" {
		t.Errorf("Peek: %v, %v", seen.Destinations, err)
	}
	s = open(t, folder)
	if s.Destination("live") != "stream B" || s.Destination("audit") != "topic t" || s.Destination("other") != "" {
		t.Errorf("%q and %q", s.Destination("live"), s.Destination("audit"))
	}
	if err := s.Commit(nil, map[string]string{"live": "f"}, nil); err != nil {
		t.Fatal(err)
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

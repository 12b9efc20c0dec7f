package sinktest

import "testing"

// Run runs the suite against the harness's kind of destination, each test as a subtest with a destination of
// its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil {
		t.Fatal("sinktest: Harness.New is nil")
	}
}

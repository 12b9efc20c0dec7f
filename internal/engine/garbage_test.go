package engine

import "testing"

func TestGarbage(t *testing.T) {
	for _, tt := range []struct {
		allocated, live uint64
		want            int
	}{{0, 0, usualGarbage}, {busyBytes - 1, 0, usualGarbage}, {busyBytes, smallHeap - 1, busyGarbage}, {busyBytes, smallHeap, usualGarbage}, {1 << 40, 1 << 30, usualGarbage}} {
		if got := garbage(tt.allocated, tt.live); got != tt.want {
			t.Errorf("%d allocated, %d live: %d", tt.allocated, tt.live, got)
		}
	}
}

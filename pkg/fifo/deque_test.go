package fifo

import (
	"math/rand/v2"
	"testing"
)

// The deque grows and shrinks through all its sizes, with its content at every place in the buffer.
func TestDeque(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var d deque[int]
	next, oldest, largest := 1, 1, 0
	for _, target := range []int{10, 0, 3000, 100, 6000, 700, 0, 40} {
		for d.len() != target {
			if grow := d.len() < target; grow == (rnd.IntN(4) > 0) || d.len() == 0 {
				d.push(next)
				next++
			} else {
				if *d.front() != oldest {
					t.Fatalf("front is %d, want %d", *d.front(), oldest)
				}
				if got := d.pop(); got != oldest {
					t.Fatalf("pop gave %d, want %d", got, oldest)
				}
				oldest++
			}
			largest = max(largest, len(d.buf))
			if next-oldest != d.len() || len(d.buf) > max(keptDeque, 4*d.n) {
				t.Fatalf("%d elements in %d slots, want %d elements", d.len(), len(d.buf), next-oldest)
			}
		}
		checkDeque(t, "deque", &d)
	}
	if largest != 8192 {
		t.Errorf("the largest buffer had %d slots", largest)
	}
}

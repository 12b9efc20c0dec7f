package fifo

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/deltabridge/deltabridge/test/scale"

	"github.com/google/go-cmp/cmp"
)

// script converts the fuzzer's bytes to small numbers.
type script []byte

// next returns a number below n, or 0 at the end of the script.
func (s *script) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b) % n
}

// run plays ops on q and on m, side by side, and compares what can be seen after each one. Each push has a goroutine,
// so that pushes can wait; synctest.Wait lets each operation come to its end before the next begins.
func run(t *testing.T, q *Queue[item], m *model, ops script) {
	m.settled = map[int]string{}
	var mu sync.Mutex
	settled := map[int]string{}
	cancels := map[int]context.CancelFunc{}
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()
	for id := 1; len(ops) > 0; id++ {
		switch op := ops.next(16); {
		case op < 8:
			v := newItem(id, ops.next(5)-1, int64(ops.next(12)))
			ctx, cancel := context.WithCancel(t.Context())
			cancels[id] = cancel
			go func() {
				result := outcome(q.Push(ctx, v))
				mu.Lock()
				settled[v.ID] = result
				mu.Unlock()
			}()
			m.push(v)
		case op < 11:
			limit, maxBytes := ops.next(5), int64(ops.next(20))
			if maxBytes == 19 {
				maxBytes = math.MaxInt64
			}
			if next := m.waiting; len(next) == 0 && !m.closed || len(next) > 0 && len(m.taken) > 0 && !takes(m, next[0]) {
				continue // it would wait: see the tests of waiting
			}
			want := m.take(limit, maxBytes)
			got, err := q.Take(t.Context(), nil, limit, maxBytes)
			if !slices.Equal(want, got) {
				t.Fatalf("Take(%d, %d) (-want +got):\n%s", limit, maxBytes, cmp.Diff(want, got))
			}
			if wantErr := len(want) == 0; errors.Is(err, ErrClosed) != wantErr || !wantErr && err != nil {
				t.Fatalf("Take of %d items: error %v", len(want), err)
			}
		case op < 14:
			n := ops.next(5)
			n = min(n, len(m.taken))
			m.ack(n)
			q.Ack(n)
		case op < 15:
			if len(m.waiters) == 0 {
				continue
			}
			i := ops.next(len(m.waiters))
			cancels[m.waiters[i].ID]()
			m.cancel(i)
		default:
			if ops.next(8) > 0 {
				continue // a closed queue is soon told
			}
			m.close()
			q.Close()
		}
		synctest.Wait()
		mu.Lock()
		if !maps.Equal(m.settled, settled) {
			t.Fatalf("pushes (-want +got):\n%s", cmp.Diff(m.settled, settled))
		}
		mu.Unlock()
		if got, want := q.Stats(), m.snapshot(); got != want {
			t.Fatalf("stats (-want +got):\n%s", cmp.Diff(want, got))
		}
		checkQueue(t, q)
	}
}

// outcome returns a name for the error of a Push.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return err.Error()
}

// seeds are scripts that reach every operation: a full queue, taken items, waiting pushes, a close.
func seeds(f *testing.F) {
	f.Add(
		[]byte{
			0,
			3,
			10,
			0,
			1,
			5,
			0,
			2,
			5,
			0,
			1,
			5,
			0,
			1,
			5,
			8,
			2,
			19,
			0,
			3,
			3,
			0,
			1,
			4,
			11,
			1,
			8,
			4,
			19,
			11,
			4,
			15,
			0,
			8,
			4,
			19,
		},
	)
	f.Add([]byte{1, 2, 0, 0, 1, 4, 0, 2, 4, 0, 3, 4, 14, 0, 8, 1, 0, 11, 1, 0, 0, 11, 0, 4, 11, 8, 4, 19, 11, 4})
	f.Add([]byte{0, 1, 18, 0, 1, 4, 0, 1, 4, 0, 2, 4, 0, 2, 4, 0, 0, 4, 0, 0, 4, 0, 1, 11, 8, 1, 19, 0, 2, 11, 11, 1})
}

// FuzzPolicies compares each policy with the model.
func FuzzPolicies(f *testing.F) {
	seeds(f)
	f.Fuzz(play)
}

// TestModel plays long random scripts, the same in each run, so that an ordinary test run goes deep as well.
func TestModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 600)
	for range scale.Of(100, 400) {
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		play(t, data)
	}
}

// play creates a queue according to the first bytes, and runs the remaining script on it.
func play(t *testing.T, data []byte) {
	ops := script(data)
	m := &model{policy: []string{block, dropOldest, compact}[ops.next(3)], maxItems: 2 + ops.next(8)}
	if n := ops.next(40); n > 1 {
		m.maxBytes = int64(n)
	}
	synctest.Test(t, func(t *testing.T) { run(t, newFull(t, m.policy, m.maxItems, m.maxBytes), m, ops) })
}

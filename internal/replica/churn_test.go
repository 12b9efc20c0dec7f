package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/test/scale"
)

// acknowledged contains the numbers of all commits that the log has received.
type acknowledged struct {
	mu      sync.Mutex
	numbers map[int]bool
	last    int
}

func (a *acknowledged) add(n int) (added bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	added, a.numbers[n], a.last = !a.numbers[n], true, max(a.last, n)
	return added
}

func (a *acknowledged) latest() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// faults makes the broker fail for a process.
func faults(seed uint64) func() logtest.Fault {
	r := rand.New(rand.NewPCG(seed, 2))
	return func() logtest.Fault {
		if r.IntN(10) > 0 {
			return logtest.None
		}
		return logtest.Fault(1 + r.IntN(3))
	}
}

// Several processes follow and lead in turn, with several leaders at a time, an unreliable broker, and processes that
// lose their files. A commit has the number after that of the last commit of its process. The log never receives two
// commits with the same number, and a leader has all commits that the log had before the leader claimed it.
func TestChurn(t *testing.T) {
	for _, producers := range []bool{false, true} {
		b, all := logtest.NewBroker(producers), acknowledged{numbers: map[int]bool{}}
		var running sync.WaitGroup
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 1))
			open := func(dir string) *process {
				memory := b.Open()
				memory.SetFault(faults(r.Uint64()))
				return start(t, memory, dir)
			}
			p := open("")
			running.Go(func() {
				for range scale.Of(12, 1000) {
					stop, _ := p.run(p.Follow)
					<-time.After(rand.N(20 * time.Millisecond))
					if err := stop(); err != nil {
						t.Errorf("Follow: %v", err)
					}
					lead(p, r, &all)
					if r.IntN(4) == 0 && p.Store().Copy().Point().Pass.Number > 0 {
						p.close()
						p = open([]string{"", p.dir}[r.IntN(2)])
					}
				}
			})
		}
		running.Wait()
		if b.Arrive(); all.last < 20 {
			t.Errorf("only %d commits", all.last)
		}
		p := start(t, b.Open(), "")
		if err := p.Lead(t.Context(), false); err != nil || p.next() < all.last {
			t.Errorf("%v; the last leader has commit %d, want %d", err, p.next(), all.last)
		}
	}
}

// lead leads for a while, if the log can be claimed.
func lead(p *process, r *rand.Rand, all *acknowledged) {
	t, before := p.t, all.latest()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := p.Lead(ctx, false); err != nil {
		if errors.Is(err, statelog.ErrForeign) || files.IsNewerFormat(err) {
			t.Errorf("Lead: %v", err)
		}
		return
	}
	if p.next() < before {
		t.Errorf("a leader has commit %d, want %d", p.next(), before)
	}
	stop, _ := p.run(p.Maintain)
	for range r.IntN(20) {
		n := p.next() + 1
		if err := p.put("a", n); err != nil {
			if isFinal(err) {
				break
			}
		} else if !p.isDetached() && !all.add(n) {
			t.Errorf("the log has received commit %d twice", n)
		}
	}
	if err := stop(); err != nil && !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("Maintain: %v", err)
	}
}

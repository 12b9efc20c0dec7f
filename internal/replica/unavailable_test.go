package replica

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

// The broker is unavailable during a commit. The commit fails soon and changes nothing. When the broker is available
// again, Maintain completes it, and the next leader has it.
func TestBrokerUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		fault       logtest.Fault
		hangs, down bool
	}{
		"down":                        {down: true},
		"hangs":                       {hangs: true},
		"lost":                        {fault: logtest.NotWritten},
		"arrives too late":            {fault: logtest.Late},
		"written, not acknowledged":   {fault: logtest.Written, hangs: true},
		"on its way when it hangs up": {fault: logtest.Late, hangs: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			memory := b.Open()
			p := start(t, memory, "").lead()
			p.mustPut("a", 1)
			before := p.content()
			if test.fault != logtest.None {
				memory.Fault = func() logtest.Fault { p.log.hangs.Store(test.hangs); return test.fault }
			} else {
				p.log.hangs.Store(test.hangs)
			}
			p.log.down.Store(test.down)
			began := time.Now()
			wantError(t, "commit", p.put("a", 2), errSilent)
			if took := time.Since(began); took < patience || took > 100*patience {
				t.Errorf("the commit failed after %v", took)
			}
			p.expect(before)
			stop, _ := p.run(p.Maintain)
			wantError(t, "the next commit", p.put("b", 3), errSilent)
			_ = stop()
			memory.Fault = nil
			p.log.down.Store(false)
			p.log.hangs.Store(false)
			b.Arrive()
			stop, _ = p.run(p.Maintain)
			eventually(t, "the commit is completed", func() bool { return p.next() == 2 })
			stopped(t, stop)
			p.mustPut("b", 3) // the tracker repeats it
			want := p.content()
			start(t, b.Open(), "").lead().expect(want)
		})
	}
}

// A transaction of many records takes longer than the patience if the broker acknowledges them.
func TestSlowBroker(t *testing.T) {
	b := logtest.NewBroker(true)
	b.Claimed = 1000
	p := start(t, b.Open(), "").lead()
	slow := func([]byte) { <-time.After(patience / 4) }
	p.log.before.Store(&slow)
	began := time.Now()
	if err := p.putLarge("a", 1, noise(10_000)); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < patience {
		t.Errorf("took only %v", took)
	}
}

// noise returns a string that can't be compressed.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// A commit waits for one or two steps of a pass, and not for the whole pass.
func TestCommitDuringPass(t *testing.T) {
	b := logtest.NewBroker(true)
	b.Claimed = 20_000
	p := start(t, b.Open(), "").lead()
	for n := range 30 {
		if err := p.putLarge(fmt.Sprint("o", n), n+1, noise(20_000)); err != nil {
			t.Fatal(err)
		}
	}
	b.Remove(func(int64) bool { return true })
	steps := make(chan struct{}, 1000)
	slow := func(record []byte) {
		if !strings.Contains(string(record), "-the-commit") {
			steps <- struct{}{}
			<-time.After(5 * time.Millisecond)
		}
	}
	p.log.before.Store(&slow)
	stop, _ := p.run(p.Maintain)
	<-steps
	<-steps // the pass has begun
	before := len(steps)
	p.mustPut("o-the-commit", 31)
	waited := len(steps) - before
	eventually(t, "the pass is complete", func() bool { return p.Store().Copy().Point().Running.Number == 0 })
	all := len(steps)
	if waited > 6 || all < 30 {
		t.Errorf("waited for %d of %d records", waited, all)
	}
	stopped(t, stop)
	expectLog(t, b.Open(), p.content())
}

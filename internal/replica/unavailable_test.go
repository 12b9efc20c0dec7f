package replica

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

// outages are the ways in which the broker can become unavailable during a commit.
func outages() map[string]outage {
	return map[string]outage{
		"down":                        {down: true},
		"hangs":                       {hangs: true},
		"lost":                        {fault: logtest.NotWritten},
		"arrives too late":            {fault: logtest.Late},
		"written without an answer":   {fault: logtest.Written, hangs: true},
		"on its way when it hangs up": {fault: logtest.Late, hangs: true},
	}
}

type outage struct {
	fault       logtest.Fault
	hangs, down bool
}

// begin makes the broker unavailable for a process.
func (o outage) begin(p *process, memory *logtest.Memory) {
	if o.fault != logtest.None {
		memory.SetFault(func() logtest.Fault { p.log.hangs.Store(o.hangs); return o.fault })
	} else {
		p.log.hangs.Store(o.hangs)
	}
	p.log.down.Store(o.down)
}

// end makes the broker available again.
func (outage) end(p *process, memory *logtest.Memory) {
	memory.SetFault(nil)
	p.log.down.Store(false)
	p.log.hangs.Store(false)
	memory.Arrive()
}

// The broker is unavailable. The leader goes on without it: one commit waits for a while, and the next ones do not
// wait. When the broker is available again, the log and a standby receive everything, whether the same process goes on
// or another one with its directory.
func TestBrokerUnavailable(t *testing.T) {
	for name, o := range outages() {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " again ", again), func(t *testing.T) {
				b := logtest.NewBroker(true)
				memory := b.Open()
				p := start(t, memory, "").lead()
				p.mustPut("a", 1)
				standby := start(t, b.Open(), "")
				standby.run(standby.Follow)
				o.begin(p, memory)
				p.mustPut("a", 2)
				uses := func([]byte) { t.Error("a commit uses the log") }
				p.log.before.Store(&uses)
				p.mustPut("b", 3)
				p.spill(1, 3)
				p.log.before.Store(nil)
				if !p.isDetached() || p.Behind() != 0 {
					t.Errorf("detached: %t, %d behind", p.isDetached(), p.Behind())
				}
				if age := time.Since(p.DetachedSince()); age < 0 || age > time.Minute {
					t.Errorf("detached for %v", age)
				}
				want := p.content()
				if _, err := p.step(t.Context(), false); !errors.Is(err, errSilent) {
					t.Errorf("sent during the outage: %v", err)
				}
				if again {
					p.close()
					o.end(p, memory)
					if p = start(t, b.Open(), p.dir); !p.isDetached() {
						t.Error("the next process does not know that the log lacks something")
					}
					if p.DetachedSince().After(time.Unix(1, 0)) {
						t.Error("the next process believes to know since when")
					}
					p.lead().expect(want)
				} else {
					o.end(p, memory)
					stop, _ := p.run(p.Maintain)
					eventually(t, "the log has everything", func() bool { return !p.isDetached() })
					stopped(t, stop)
				}
				if since := p.DetachedSince(); !since.IsZero() {
					t.Errorf("detached since %v", since)
				}
				p.expect(want)
				standby.caughtUp(p)
				standby.expect(want)
				expectLog(t, b.Open(), want)
				p.mustPut("b", 4)
				standby.caughtUp(p)
				standby.expect(p.content())
			})
		}
	}
}

// lateConflict is a log that another process has claimed, and whose broker says so too late.
type lateConflict struct{ statelog.Log }

func (l lateConflict) Append(ctx context.Context, _ int64, _ []byte) (int64, error) {
	<-ctx.Done()
	return 0, statelog.ErrConflict
}

func (l lateConflict) Fence(ctx context.Context) (int64, error) { return l.Append(ctx, 0, nil) }

// The broker says that another process leads after the patience has ended: the term ends once, and the checkpoint does
// not go on without the log.
func TestLateConflict(t *testing.T) {
	p := start(t, logtest.NewBroker(true).Open(), "").lead()
	p.log.Log = lateConflict{p.log.Log}
	if err := p.put("a", 1); !errors.Is(err, statelog.ErrConflict) || p.isDetached() {
		t.Errorf("%v, detached: %t", err, p.isDetached())
	}
	if err := p.unlocked(t.Context(), func(context.Context) error { return statelog.ErrConflict }); !isFinal(err) {
		t.Error(err)
	}
	select {
	case <-p.journal.ended:
	default:
		t.Error("the term has not ended")
	}
}

// Another process has claimed the log while the leader went on without it. The leader's term ends when it notices that,
// and what only it has is discarded. So it is if the leader has started again.
func TestAnotherLeadsMeanwhile(t *testing.T) {
	for name, o := range outages() {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			memory := b.Open()
			p := start(t, memory, "").lead()
			p.mustPut("a", 1)
			_, ended := p.run(p.Maintain)
			o.begin(p, memory)
			p.mustPut("a", 2)
			p.mustPut("b", 3)
			other := start(t, b.Open(), "").lead()
			other.mustPut("c", 4)
			if o.end(p, memory); o.hangs {
				p.close()
				p = start(t, b.Open(), p.dir)
			} else {
				wantError(t, "Maintain", result(t, ended), statelog.ErrConflict)
			}
			wantError(t, "commit", p.put("b", 5), statelog.ErrConflict)
			p.run(p.Follow)
			p.caughtUp(other)
			if p.expect(other.content()); p.isDetached() {
				t.Error("it still has something that the log lacks")
			}
		})
	}
}

// A process is killed after each record of what it sends when the broker is available again. Until then, a copy of the
// log is consistent: it has either all events or none. In the end, it has everything.
func TestKilledWhileSending(t *testing.T) {
	for records := 0; ; records++ {
		b := logtest.NewBroker(true)
		b.Claimed = 500_000
		p := start(t, b.Open(), "").lead()
		p.Copy.log.patience = 50 * time.Millisecond
		p.log.down.Store(true)
		p.mustPut("a", 1)
		p.spill(1, 7)
		if err := p.putLarge("a", 2, noise(1_000_000)); err != nil {
			t.Fatal(err)
		}
		want, left := p.content(), records
		p.log.down.Store(false)
		cut := func([]byte) {
			if left--; left < 0 {
				p.log.hangs.Store(true)
			}
		}
		p.log.before.Store(&cut)
		var err error
		for p.isDetached() && err == nil {
			_, err = p.step(t.Context(), false)
		}
		reader := start(t, b.Open(), "")
		stop, _ := reader.run(reader.Follow)
		eventually(t, "a copy is complete", func() bool { return reader.Behind() >= 0 })
		stopped(t, stop)
		if got := reader.content(); got.Waiting != 0 && got.Waiting != want.Waiting {
			t.Errorf("%d of %d events", got.Waiting, want.Waiting)
		}
		p.close()
		again := start(t, b.Open(), p.dir).lead()
		again.expect(want)
		expectLog(t, b.Open(), want)
		if err == nil {
			if records < 7 {
				t.Errorf("only %d records", records)
			}
			return
		}
	}
}

// The broker becomes unavailable while a pass is written. The pass continues when the log has everything else.
func TestUnavailableDuringPass(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "").lead()
	p.mustPut("a", 1)
	b.Remove(func(int64) bool { return true })
	if more, err := p.step(t.Context(), true); err != nil || !more { // the pass begins
		t.Fatal(more, err)
	}
	p.log.hangs.Store(true)
	if _, err := p.step(t.Context(), false); !errors.Is(err, errSilent) {
		t.Errorf("a step of the pass: %v", err)
	}
	p.mustPut("a", 2)
	p.log.hangs.Store(false)
	stop, _ := p.run(p.Maintain)
	eventually(t, "the log has everything", func() bool {
		return !p.isDetached() && p.Store().Copy().Point().Running.Number == 0
	})
	stopped(t, stop)
	expectLog(t, b.Open(), p.content())
}

// The broker becomes unavailable while nothing changes.
func TestUnavailableWhileIdle(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "").lead()
	p.mustPut("a", 1)
	eventually(t, "a commit without changes is due", func() bool {
		return time.Since(time.UnixMilli(p.committed.Load())) > p.timing.check
	})
	appending := make(chan struct{}, 100)
	down := func([]byte) { p.log.down.Store(true); appending <- struct{}{} }
	p.log.before.Store(&down)
	if _, err := p.step(t.Context(), true); !errors.Is(err, errSilent) || len(appending) == 0 {
		t.Errorf("a commit without changes: %v", err)
	}
	p.mustPut("a", 2)
	p.log.before.Store(nil)
	p.log.down.Store(false)
	for p.isDetached() {
		if _, err := p.step(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	expectLog(t, b.Open(), p.content())
}

// Commits do not wait while much is sent.
func TestCommitWhileSending(t *testing.T) {
	b := logtest.NewBroker(true)
	b.Claimed = 100_000
	p := start(t, b.Open(), "").lead()
	p.log.down.Store(true)
	p.mustPut("a", 1)
	if err := p.putLarge("a", 2, noise(4_000_000)); err != nil {
		t.Fatal(err)
	}
	p.log.down.Store(false)
	records := 0
	held, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	hold := func([]byte) {
		if records++; records == 4 { // the first one is of the commit that failed
			close(held)
			<-released
		}
	}
	p.log.before.Store(&hold)
	stop, _ := p.run(p.Maintain)
	<-held
	put := make(chan error, 1)
	go func() { put <- p.put("b", 3) }()
	if err := result(t, put); err != nil || !p.isDetached() {
		t.Errorf("a commit: %v", err)
	}
	release()
	eventually(t, "the log has everything", func() bool { return !p.isDetached() })
	stopped(t, stop)
	expectLog(t, b.Open(), p.content())
}

// A term ends while the log is unavailable. The next one, of the same process, sends what the log lacks.
func TestTermEndsWithoutTheLog(t *testing.T) {
	b := logtest.NewBroker(true)
	l := newLease()
	m := l.join(start(t, b.Open(), ""))
	m.awaitTerm(1)
	m.mustPut("a", 1)
	m.log.down.Store(true)
	m.mustPut("a", 2)
	want := m.content()
	m.current.Load().end()
	eventually(t, "the term is over", func() bool { return !m.leads.Load() })
	m.log.down.Store(false)
	m.awaitTerm(2)
	eventually(t, "the log has everything", func() bool { return !m.isDetached() })
	m.expect(want)
	stopped(t, m.stop)
	expectLog(t, b.Open(), want)
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
	for round := 1; ; round++ { // the machine may do something else for a while
		waited := commitDuringPass(t)
		if waited <= 6 {
			return
		}
		if round == 5 {
			t.Fatalf("waited for %d records", waited)
		}
	}
}

func commitDuringPass(t *testing.T) (waited int) {
	t.Helper()
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
	waited = len(steps) - before
	eventually(t, "the pass is complete", func() bool { return p.Store().Copy().Point().Running.Number == 0 })
	if all := len(steps); all < 30 {
		t.Errorf("the pass has only %d records", all)
	}
	stopped(t, stop)
	expectLog(t, b.Open(), p.content())
	return waited
}

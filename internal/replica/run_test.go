package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// lease elects one process at a time.
type lease struct{ held chan struct{} }

func newLease() *lease { return &lease{make(chan struct{}, 1)} }

// term is a Term that end ends.
type term struct {
	ctx context.Context //nolint:containedctx // a Term has a context
	end context.CancelFunc
}

func (t *term) Context() context.Context { return t.ctx }
func (t *term) Valid() bool              { return t.ctx.Err() == nil }

// member is a process that takes part in the election.
type member struct {
	*process

	terms   atomic.Int32
	current atomic.Pointer[term]
	failure error         // of the engine
	hold    chan struct{} // if it is not nil, the engine does not end before it is closed
	stop    func() error
	ended   <-chan error
}

// join starts a process.
func (l *lease) join(p *process) *member {
	m := &member{process: p}
	m.stop, m.ended = p.run(func(ctx context.Context) error {
		return p.Run(ctx, Terms{
			Elect: func(ctx context.Context, lead func(Term)) error {
				for ; ctx.Err() == nil; <-time.After(time.Millisecond) {
					select {
					case <-ctx.Done():
						continue
					case l.held <- struct{}{}:
					}
					if p.Eligible() {
						held, end := context.WithCancel(ctx)
						t := &term{held, end}
						m.current.Store(t)
						lead(t)
						t.end()
					}
					<-l.held
				}
				if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
					m.t.Errorf("requests for the Lease fail with %v", cause)
				}
				return nil
			},
			Cluster: func(context.Context) (string, error) { return cluster, nil },
			Engine: func(ctx context.Context, store *checkpoint.Store, rights Rights) error {
				if !rights.Leads() && ctx.Err() == nil {
					m.t.Error("an engine that does not lead")
				}
				m.terms.Add(1)
				<-ctx.Done()
				<-rights.Linger
				if m.hold != nil {
					<-m.hold
				}
				return m.failure
			},
		})
	})
	return m
}

// awaitTerm waits until a process leads for the nth time.
func (m *member) awaitTerm(n int32) {
	m.t.Helper()
	eventually(m.t, fmt.Sprint("term ", n), func() bool { return m.terms.Load() >= n && m.Behind() == 0 })
}

// Leadership moves from one process to the other, with the state, as often as a term ends.
func TestTerms(t *testing.T) {
	b, l := logtest.NewBroker(true), newLease()
	one := l.join(start(t, b.Open(), ""))
	one.awaitTerm(1)
	if one.Ready() {
		t.Error("the leader is ready to take over")
	}
	one.mustPut("a", 1)
	other := l.join(start(t, b.Open(), ""))
	eventually(t, "the standby is ready", other.Ready)
	members := []*member{one, other}
	for n := range 6 {
		leader, standby := members[n%2], members[(n+1)%2]
		before := standby.terms.Load()
		leader.mustPut("a", n+2)
		want := leader.content()
		leader.current.Load().end()
		standby.awaitTerm(before + 1)
		standby.expect(want)
		eventually(t, "the old leader follows", leader.Ready)
	}
	stopped(t, one.stop)
	stopped(t, other.stop)
}

// A process whose checkpoint is a copy of another cluster's log refuses that log, and discards the copy. It uses a new
// log at once, also when it starts again, and follows the log of its own cluster.
func TestCopyOfAnotherCluster(t *testing.T) {
	other, b, l := logtest.NewBroker(true), logtest.NewBroker(true), newLease()
	old := start(t, other.Open(), "", func(o *Options) { o.Claim.Cluster = "other" })
	if err := errors.Join(old.Lead(t.Context(), false), old.Store().BeginCluster("other")); err != nil {
		t.Fatal(err)
	}
	old.mustPut("a", 1)
	old.close()
	moved := func() string { // a directory with the copy
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(old.dir)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, dir := range []string{moved(), t.TempDir()} {
		m := l.join(start(t, other.Open(), dir, func(o *Options) { o.Claim.Cluster = "" }))
		wantError(t, "Run", result(t, m.ended), statelog.ErrForeign)
		if n := len(m.content().Rows); n != 0 {
			t.Errorf("%d rows", n)
		}
	}
	m := l.join(start(t, b.Open(), moved()))
	m.awaitTerm(1)
	if err := m.Store().BeginCluster(cluster); err != nil {
		t.Fatal(err)
	}
	m.mustPut("b", 2)
	stopped(t, m.stop)
	m.close()
	m = l.join(start(t, b.Open(), m.dir))
	m.awaitTerm(1)
	standby := l.join(start(t, b.Open(), moved()))
	eventually(t, "the standby is ready", standby.Ready)
	standby.expect(m.content())
	stopped(t, standby.stop)
	stopped(t, m.stop)
}

// A checkpoint of another cluster that was never in a log is quarantined. The process uses a new log, also when it starts
// again, and another process follows it.
func TestCheckpointOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	file, err := checkpoint.Open(checkpoint.Options{Path: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.BeginCluster("other"), file.Close()); err != nil {
		t.Fatal(err)
	}
	b, l := logtest.NewBroker(true), newLease()
	for n := range 2 {
		m := l.join(start(t, b.Open(), dir))
		m.awaitTerm(1)
		if err := m.Store().BeginCluster(cluster); err != nil {
			t.Fatal(err)
		}
		m.mustPut("a", n+1)
		stopped(t, m.stop)
		m.close()
	}
	if found, err := filepath.Glob(filepath.Join(dir, "checkpoint.db.other-cluster-*")); err != nil || len(found) != 1 {
		t.Errorf("%q, %v", found, err)
	}
	standby := l.join(start(t, b.Open(), ""))
	standby.awaitTerm(1)
	if n := len(standby.content().Rows); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// Another process claims the log although it was not elected. The leader's engine ends, and Run continues.
func TestTermEndsWithTheLog(t *testing.T) {
	b := logtest.NewBroker(true)
	m := newLease().join(start(t, b.Open(), ""))
	m.failure = errors.New("the last commit failed")
	m.hold = make(chan struct{})
	release := sync.OnceFunc(func() { close(m.hold) })
	defer release()
	m.awaitTerm(1)
	eventually(t, "a complete pass", func() bool { return m.NotReady() == nil }) // the intruder requires it
	intruder := start(t, b.Open(), "").lead()
	intruder.mustPut("a", 1)
	release() // from here on it may lead again
	m.awaitTerm(2)
	m.expect(intruder.content())
	m.failure = nil
	stopped(t, m.stop)
}

// The last commit of an engine fails because another process has claimed the log, and the engine ends at once, before
// Maintain has noticed the claim. Run continues.
func TestEngineEndsBeforeMaintain(t *testing.T) {
	for range 20 {
		b := logtest.NewBroker(true)
		p, intruder := start(t, b.Open(), ""), start(t, b.Open(), "")
		terms := 0
		err := p.Run(t.Context(), Terms{
			Elect: func(ctx context.Context, lead func(Term)) error {
				for ctx.Err() == nil && terms < 2 {
					held, end := context.WithCancel(ctx)
					lead(&term{held, end})
					end()
				}
				return nil
			},
			Cluster: func(context.Context) (string, error) { return cluster, nil },
			Engine: func(context.Context, *checkpoint.Store, Rights) error {
				if terms++; terms > 1 {
					return nil
				}
				eventually(t, "a complete pass", func() bool { return p.NotReady() == nil }) // the intruder requires it
				intruder.lead().mustPut("a", 1)
				return p.put("b", 2)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A leader that is stopped before the log contains its whole file first writes the rest. If the log cannot be written,
// it stops nevertheless.
func TestStoppedBeforeTheFirstPass(t *testing.T) {
	for name, down := range map[string]bool{"log is available": false, "log is down": true} {
		t.Run(name, func(t *testing.T) {
			b, dir := logtest.NewBroker(true), t.TempDir()
			b.Claimed = 1000 // a pass has many commits
			want := newFile(t, dir, 50)
			p := start(t, b.Open(), dir)
			began, appended := make(chan struct{}), 0
			slow := func([]byte) {
				if appended++; appended == 4 {
					p.log.down.Store(down)
					close(began)
				}
				<-time.After(5 * time.Millisecond)
			}
			p.log.before.Store(&slow)
			m := newLease().join(p)
			<-began
			if p.NotReady() == nil {
				t.Error("the pass is complete")
			}
			stopped(t, m.stop)
			if !down {
				expectLog(t, b.Open(), want)
			}
		})
	}
}

// A failure of the engine that is not a lost term ends Run.
func TestEngineFails(t *testing.T) {
	m := newLease().join(start(t, logtest.NewBroker(true).Open(), ""))
	m.failure = errors.New("the disk is gone")
	m.awaitTerm(1)
	m.current.Load().end()
	if err := <-m.ended; !errors.Is(err, m.failure) {
		t.Error(err)
	}
}

// The log was purged while no process led. A process whose copy was up to date writes it to the log, before a process
// without a copy can lead. If there is only a process with an older copy, it does so after a while.
func TestPurgedWhileVacant(t *testing.T) {
	patient := func(o *Options) { o.Patience = 100 * time.Millisecond }
	for name, wasReady := range map[string]bool{"up to date": true, "older": false} {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			p := start(t, b.Open(), "", patient).lead()
			p.mustPut("a", 1)
			want := p.content()
			p.resign()
			p.wasReady.Store(wasReady)
			b.Remove(func(int64) bool { return true })
			l := newLease()
			complete := l.join(p)
			if wasReady {
				empty := l.join(start(t, b.Open(), "", patient))
				defer stopped(t, empty.stop)
			}
			complete.awaitTerm(1)
			complete.expect(want)
			stopped(t, complete.stop)
		})
	}
}

// A process that has another configuration than the last leader lets others try first.
func TestEligible(t *testing.T) {
	b := logtest.NewBroker(true)
	configured := func(c string) func(*Options) {
		return func(o *Options) { o.Claim.Configuration, o.Patience = c, 200*time.Millisecond }
	}
	start(t, b.Open(), "", configured("old")).lead().resign()
	same, changed := start(t, b.Open(), "", configured("old")), start(t, b.Open(), "", configured("new"))
	if same.Eligible() {
		t.Error("eligible before the log was read")
	}
	for _, p := range []*process{same, changed} {
		p.run(p.Follow)
		eventually(t, "ready", p.Ready)
	}
	if !same.Eligible() || changed.Eligible() {
		t.Errorf("same configuration: %v, changed configuration: %v", same.Eligible(), changed.Eligible())
	}
	eventually(t, "nobody else leads", changed.Eligible)
	changed.asked = changed.asked.Add(-time.Second) // another process has led meanwhile
	if changed.Eligible() {
		t.Error("eligible although another process has led")
	}
}

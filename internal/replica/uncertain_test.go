package replica

import (
	"os"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

// The broker receives the hash of a changed configuration, but acknowledges nothing any more. The leader goes on
// without the log, and is killed. The next process with its directory does not take the claim for that of another
// replica.
func TestKilledAfterAnUncertainClaim(t *testing.T) {
	for name, o := range outages() {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			memory := b.Open()
			p := start(t, memory, "").lead()
			p.mustPut("a", 1)
			o.begin(p, memory)
			if err := p.SetConfiguration(t.Context(), "changed"); err == nil {
				t.Error("the log names the configuration during the outage")
			}
			p.mustPut("a", 2)
			p.spill(1, 3)
			want := p.content()
			p.close()
			o.end(p, memory)
			p = start(t, b.Open(), p.dir).lead()
			p.expect(want)
			expectLog(t, b.Open(), want)
		})
	}
}

// A leader has sent a part of the new events when it is lost with its directory. They do not count, and no sink has to
// be kept because of them.
func TestLostWhileSendingEvents(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "").lead()
	p.log.down.Store(true)
	p.mustPut("a", 1)
	p.spill(1, 14)
	p.log.down.Store(false)
	for range 2 { // there are three parts
		if _, err := p.step(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if !p.isDetached() {
		t.Fatal("the log has everything")
	}
	p.close()
	next := start(t, b.Open(), "").lead()
	sinks, err := next.Store().Waiting()
	if n := next.content().Waiting; err != nil || n > 0 || len(sinks) > 0 {
		t.Errorf("%d events wait, for the sinks %q, %v", n, sinks, err)
	}
}

// A directory is restored from a backup that was made while the leader went on without the log. The log has these
// changes since then, and later ones, which replace what the backup has.
func TestBackupOfUnsentChanges(t *testing.T) {
	for _, name := range []string{"", "another process sends them", "the leader detaches again before the log says so"} {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			p := start(t, b.Open(), "").lead()
			p.mustPut("a", 1)
			p.log.down.Store(true)
			p.mustPut("a", 2)
			backup := t.TempDir()
			if err := os.CopyFS(backup, os.DirFS(p.dir)); err != nil {
				t.Fatal(err)
			}
			p.log.down.Store(false)
			switch name {
			case "another process sends them":
				p.close()
				p = start(t, b.Open(), p.dir).lead()
			case "the leader detaches again before the log says so":
				for p.isDetached() {
					if _, err := p.step(t.Context(), false); err != nil {
						t.Fatal(err)
					}
				}
				p.log.down.Store(true)
				p.mustPut("a", 3)
				p.log.down.Store(false)
			}
			stop, _ := p.run(p.Maintain)
			eventually(t, "the log has everything", func() bool { return p.Store().Copy().Point().Claim.Sent != "" })
			stopped(t, stop)
			p.mustPut("a", 4)
			p.mustPut("b", 5)
			want := p.content()
			p.close()
			p = start(t, b.Open(), backup).lead()
			p.expect(want)
			expectLog(t, b.Open(), want)
		})
	}
}

// The log is lost while its broker is unavailable, and the leader goes on without it. When the broker is back, the
// leader writes its state again. A standby, whose copy was up to date before, does not lead first.
func TestLostWhileUnavailable(t *testing.T) {
	b := logtest.NewBroker(true)
	l := newLease()
	leader := l.join(start(t, b.Open(), ""))
	leader.awaitTerm(1)
	standby := l.join(start(t, b.Open(), "", func(o *Options) { o.timing.loss = time.Hour }))
	leader.mustPut("a", 1)
	standby.caughtUp(leader.process)
	standby.log.down.Store(true)
	leader.mustPut("a", 2) // so the standby tries to read
	eventually(t, "the standby cannot read the log", func() bool { return standby.Behind() == unknown })
	leader.log.down.Store(true)
	leader.mustPut("a", 3)
	want := leader.content()
	b.Recreate()
	standby.log.down.Store(false)
	eventually(t, "the standby has noticed the loss", standby.incomplete.Load)
	leader.log.down.Store(false)
	eventually(t, "a process leads", func() bool { return leader.terms.Load() > 1 || standby.terms.Load() > 0 })
	eventually(t, "the log has everything", func() bool { return !leader.isDetached() && leader.NotReady() == nil })
	leader.expect(want)
	stopped(t, leader.stop)
	expectLog(t, b.Open(), want)
}

// While the log is unavailable, a process with changes that only it has need not let others try first, who would
// discard them.
func TestEligibleWithUnsentChanges(t *testing.T) {
	b := logtest.NewBroker(true)
	patient := func(o *Options) { o.Patience = time.Hour }
	p, standby := start(t, b.Open(), "").lead(), start(t, b.Open(), "", patient)
	stop, _ := standby.run(standby.Follow)
	standby.caughtUp(p)
	p.log.down.Store(true)
	standby.log.down.Store(true)
	p.mustPut("a", 1)
	p.close()
	stopped(t, stop)
	standby.run(standby.Follow)
	down := b.Open()
	down.Down = errDown
	p = start(t, down, p.dir, patient)
	p.run(p.Follow)
	if !p.Eligible() || standby.Eligible() {
		t.Errorf("with unsent changes: %t, without: %t", p.Eligible(), standby.Eligible())
	}
}

// The log is lost while its broker is unavailable, and the leader, which goes on without it, is killed. The next process
// with its directory does not let a standby lead first, which lacks these changes.
func TestUnsentChangesAndNoLog(t *testing.T) {
	b := logtest.NewBroker(true)
	p, standby := start(t, b.Open(), "").lead(), start(t, b.Open(), "")
	stop, _ := standby.run(standby.Follow)
	standby.caughtUp(p)
	standby.log.down.Store(true)
	p.mustPut("a", 1) // so the standby tries to read
	eventually(t, "the standby cannot read the log", standby.missed.Load)
	p.log.down.Store(true)
	p.mustPut("a", 2)
	want := p.content()
	p.close()
	b.Recreate()
	standby.log.down.Store(false)
	eventually(t, "the standby has noticed the loss", standby.incomplete.Load)
	stopped(t, stop)
	p = start(t, b.Open(), p.dir)
	if !p.acceptsLoss() || standby.acceptsLoss() {
		t.Fatalf("with unsent changes: %t, without: %t", p.acceptsLoss(), standby.acceptsLoss())
	}
	if err := p.Lead(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	p.expect(want)
	stop, _ = p.run(p.Maintain)
	expectLog(t, b.Open(), want)
	stopped(t, stop)
}

// Reach finds out whether the log can be written, also if nothing has changed since the broker became unavailable.
func TestReach(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "").lead()
	reaches := func(want bool) {
		t.Helper()
		if err := p.Reach(t.Context()); (err == nil) != want {
			t.Errorf("reaches the log: %v", err)
		}
	}
	reaches(true)
	p.log.down.Store(true)
	reaches(false)
	p.mustPut("a", 1)
	p.log.down.Store(false)
	reaches(false)
	stop, _ := p.run(p.Maintain)
	eventually(t, "the log has everything", func() bool { return !p.isDetached() })
	reaches(true)
	stopped(t, stop)
	expectLog(t, b.Open(), p.content())
	p.resign()
	reaches(false)
}

package statelog_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

// wantCopy checks the content of a complete copy.
func wantCopy(t *testing.T, name string, got *logtest.Copy, want logtest.Content) {
	t.Helper()
	if diff := cmp.Diff(want, got.Content()); diff != "" || got.Point().Partial {
		t.Errorf("%s has (-want +got) %s\nat %+v", name, diff, got.Point())
	}
}

// The broker has lost the last commit. Copies that have this commit keep it, and a leader with such a copy writes it
// again.
func TestLostEnd(t *testing.T) {
	b := logtest.NewBroker(false)
	l := lead(t, b, "l")
	for n := range 3 {
		l.commit(put(fmt.Sprint("k", n), "v"))
	}
	standby := &logtest.Copy{}
	f := statelog.NewFollower(b.Open(), standby, statelog.Claim{})
	if err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Remove(func(p int64) bool { return p == 3 })
	f = statelog.NewFollower(b.Open(), standby, statelog.Claim{})
	for range 2 {
		wantError(t, f.Read(t.Context()), statelog.ErrIncomplete, "the last commit of the local copy is not in it")
	}
	wantError(t, l.Claim(t.Context(), false), statelog.ErrIncomplete)
	late := standby.Clone()
	l.claimAnyway()
	l.pass()
	wantCopy(t, "the leader", l.copy, content(put("k0", "v"), put("k1", "v"), put("k2", "v")))
	wantContent(t, b, l.copy.Content())
	for name, c := range map[string]*logtest.Copy{"the standby": standby, "a late one": late} {
		resets := c.Resets
		if err := statelog.NewFollower(b.Open(), c, statelog.Claim{}).Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wantCopy(t, name, c, l.copy.Content()); c.Resets != resets {
			t.Errorf("%s was emptied", name)
		}
	}
}

// A record of the last commit is lost: nothing of this commit is applied.
func TestLostPart(t *testing.T) {
	for part := range int64(3) {
		b := logtest.NewBroker(false)
		b.Claimed = 400
		l := lead(t, b, "l")
		l.commit(put("a", "1"))
		l.commit(put("a", "2"), put("b", strings.Repeat("long", 200)))
		if n := records(t, b); n != 5 {
			t.Fatalf("%d records", n)
		}
		b.Remove(func(p int64) bool { return p == 2+part })
		wantContent(t, b, content(put("a", "1")))
		l.commit(put("c", "3"))
		c := &logtest.Copy{}
		wantError(t, statelog.NewFollower(b.Open(), c, statelog.Claim{}).Read(t.Context()), statelog.ErrIncomplete)
		wantCopy(t, "a reader", c, content(put("a", "1")))
	}
}

// The log is created again by a leader with an older copy, and is longer than before when a follower reads again.
func TestAnotherLogUnderTheSamePositions(t *testing.T) {
	b := logtest.NewBroker(false)
	l := lead(t, b, "l")
	older := l.copy.Clone()
	for n := range 3 {
		l.commit(put(fmt.Sprint("k", n), "v"))
	}
	standby := &logtest.Copy{}
	f := statelog.NewFollower(b.Open(), standby, statelog.Claim{})
	if err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Recreate()
	other := newLeader(t, b, older, statelog.Claim{})
	other.claimAnyway()
	other.pass()
	for n := range 10 {
		other.commit(put(fmt.Sprint("new", n), "v"))
	}
	if err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCopy(t, "the standby", standby, other.copy.Content())
	l.claim() // its commits are lost, but it leads with what the log has
	wantCopy(t, "the former leader", l.copy, other.copy.Content())
}

// The log was emptied, and begins again with a lower epoch, because the clock was wrong.
func TestLowerEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logtest.NewBroker(false)
		l := lead(t, b, "l")
		for range 3 {
			l.claim()
		}
		l.commit(put("a", "1"))
		b.Remove(func(int64) bool { return true })
		other := lead(t, b, "other")
		if other.Term().Epoch >= l.Term().Epoch {
			t.Fatalf("epoch %d is not lower than %d", other.Term().Epoch, l.Term().Epoch)
		}
		other.commit(put("b", "2"))
		other.commit(put("c", "3"))
		l.claim()
		wantCopy(t, "the former leader", l.copy, content(put("b", "2"), put("c", "3")))
	})
}

// Commits are missing in the middle of the log. The leader's copy can't be written when it has appended its claim, and
// has everything that it had when the process claims the log again.
func TestClaimAfterAGap(t *testing.T) {
	b := logtest.NewBroker(false)
	l := lead(t, b, "l")
	for n := range 5 {
		l.commit(put(fmt.Sprint("k", n), "v"))
	}
	highest := l.copy.Point().Number
	b.Remove(func(p int64) bool { return p == 3 })
	other := newLeader(t, b, &logtest.Copy{}, statelog.Claim{})
	other.log.SetFault(func() logtest.Fault { other.copy.Fail = errBroken; return logtest.None })
	wantError(t, other.Claim(t.Context(), true), errBroken)
	other.copy.Fail = nil
	other.log.SetFault(nil)
	if err := other.Claim(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	wantError(t, other.Problem(), statelog.ErrIncomplete)
	other.pass()
	want := content(put("k0", "v"), put("k1", "v"))
	wantCopy(t, "the leader", other.copy, want)
	wantContent(t, b, want)
	if at := other.copy.Point(); at.Pass.Number <= highest {
		t.Errorf("the pass begins with commit %d, but there was commit %d", at.Pass.Number, highest)
	}
}

// A process accepts that its copy is incomplete, and must fence again before it can claim the log. Problem still
// returns the loss.
func TestAcceptedAndFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logtest.NewBroker(true)
		newLeader(t, b, logtest.NewCopy(content(put("a", "1"))), statelog.Claim{}).claim()
		l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{})
		l.log.SetFault(func() logtest.Fault {
			l.log.SetFault(nil)
			if _, err := b.Open().Fence(t.Context()); err != nil {
				t.Error(err)
			}
			return logtest.None
		})
		l.claimAnyway()
	})
}

// A process accepts that its copy is incomplete, and loses the race against the leader. It then reads the log again.
func TestAcceptedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logtest.NewBroker(false)
		old := newLeader(t, b, logtest.NewCopy(content(put("a", "1"))), statelog.Claim{})
		old.claim()
		for _, finishes := range []bool{true, false} {
			l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Holder: "new"})
			l.log.SetFault(func() logtest.Fault {
				l.log.SetFault(nil)
				if old.commit(put("b", "2")); finishes {
					old.pass()
				}
				return logtest.None
			})
			if err := l.Claim(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if finishes {
				wantCopy(t, "the new leader", l.copy, content(put("a", "1"), put("b", "2")))
				if l.Problem() != nil {
					t.Errorf("there is no problem: %v", l.Problem())
				}
				b.Recreate()
				old = newLeader(t, b, logtest.NewCopy(content(put("a", "1"))), statelog.Claim{})
				old.claim()
				continue
			}
			wantError(t, l.Problem(), statelog.ErrIncomplete)
			wantContent(t, b, content())
		}
	})
}

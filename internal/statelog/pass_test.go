package statelog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

// long returns a value of some size.
func long(n int) string { return fmt.Sprint(n, strings.Repeat("v", 100)) }

// The content of a file that is older than the log is written to the log.
func TestFirstLog(t *testing.T) {
	b := logtest.NewBroker(false)
	want := content(put("a", "1"), put("b", "2"))
	l := newLeader(t, b, logtest.NewCopy(want), statelog.Claim{})
	l.claim()
	reader := &logtest.Copy{}
	f := statelog.NewFollower(b.Open(), reader, statelog.Claim{})
	if err := f.Read(t.Context()); err != nil || !reader.Point().Partial || f.Behind() != -1 {
		t.Errorf("%v, %+v, %d behind", err, reader.Point(), f.Behind())
	}
	l.commit(put("c", "3"))
	l.pass()
	want.Apply([]statelog.Pair{put("c", "3")})
	wantContent(t, b, want)
	if err := f.Read(t.Context()); err != nil || reader.Point().Partial || f.Behind() != 2 {
		t.Errorf("%v, %+v, %d behind", err, reader.Point(), f.Behind())
	}
	// Another file that is older than the log is replaced.
	other := newLeader(t, b, logtest.NewCopy(content(put("x", "1"))), statelog.Claim{})
	other.claim()
	if diff := cmp.Diff(want, other.copy.Content()); diff != "" {
		t.Error(diff)
	}
}

// A pass begins when enough was appended, and ends with everything before it removed. Commits are appended meanwhile.
func TestPass(t *testing.T) {
	b := logtest.NewBroker(true)
	b.Claimed = 500
	l := lead(t, b, "l")
	l.SetInterval(10_000)
	for n := range 20 {
		l.commit(put(fmt.Sprint("k", n), long(n)))
	}
	if steps := l.pass(); steps != 1 {
		t.Errorf("%d steps of a pass that is not due", steps)
	}
	for n := range 100 {
		l.commit(put(fmt.Sprint("k", n%20), long(n)))
	}
	before := records(t, b)
	for n, more := 0, true; more; n++ {
		var err error
		if more, err = l.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if more {
			removed := statelog.Pair{Bucket: "rows", Source: "s", Key: fmt.Sprint("k", 19-n)}
			l.commit(put(fmt.Sprint("k", n), long(1000+n)), removed)
		}
	}
	if n := records(t, b); n > before/2 {
		t.Errorf("%d records, before the pass %d", n, before)
	}
	wantContent(t, b, l.copy.Content())
	pass := l.copy.Point().Pass
	if steps := l.pass(); steps != 1 || pass.Bytes == 0 || pass.Total <= pass.Bytes {
		t.Errorf("%d more steps, %+v", steps, pass)
	}
	// A pass that its leader can't finish begins again with the next claim.
	l.SetInterval(-1 << 20)
	if more, err := l.Refresh(t.Context()); err != nil || !more {
		t.Fatal(more, err)
	}
	other := lead(t, b, "other")
	if p := other.copy.Point(); p.Pass.Number != pass.Number || p.Running.Number != p.Number {
		t.Errorf("%+v, want %+v", p, pass)
	}
	other.pass()
	if p := other.copy.Point().Pass; p.Number <= pass.Number {
		t.Errorf("%+v follows %+v", p, pass)
	}
	wantContent(t, b, l.copy.Content())
}

// Records that can't be removed are removed later, or by the next leader.
func TestTruncateFails(t *testing.T) {
	b := logtest.NewBroker(false)
	l := newLeader(t, b, logtest.NewCopy(content(put("a", "1"))), statelog.Claim{})
	l.claim()
	l.SetInterval(-1 << 20)
	failing := failingLog{l.log}
	l.Writer = statelog.NewWriter(failing, l.copy, statelog.Claim{})
	l.SetInterval(-1 << 20)
	l.claim()
	var err error
	for range 3 {
		_, err = l.Refresh(t.Context())
	}
	wantError(t, err, errBroken)
	before := records(t, b)
	other := newLeader(t, b, l.copy.Clone(), statelog.Claim{})
	other.claim()
	other.pass()
	if n := records(t, b); n >= before {
		t.Errorf("%d records, before %d", n, before)
	}
	wantContent(t, b, content(put("a", "1")))
}

type failingLog struct{ *logtest.Memory }

// The log is purged while the leader has everything: it is complete again after a pass.
func TestPurge(t *testing.T) {
	for name, purge := range map[string]func(b *logtest.Broker){
		"everything":        func(b *logtest.Broker) { b.Remove(func(int64) bool { return true }) },
		"the beginning":     func(b *logtest.Broker) { b.Remove(func(p int64) bool { return p < 5 }) },
		"a part of a claim": func(b *logtest.Broker) { b.Remove(func(p int64) bool { return p == 0 }) },
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restart: ", restart), func(t *testing.T) {
				b := logtest.NewBroker(false)
				b.Claimed = 120 // a claim has several records
				l := lead(t, b, "l")
				for n := range 5 {
					l.commit(put(fmt.Sprint("k", n), "v"))
				}
				follower := &logtest.Copy{}
				f := statelog.NewFollower(b.Open(), follower, statelog.Claim{})
				if complete, err := l.Check(t.Context()); err != nil || !complete {
					t.Fatal(complete, err)
				}
				if err := f.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
				purge(b)
				if restart {
					// The last commit of the copy is gone if everything is.
					if err := l.Claim(t.Context(), true); err != nil {
						t.Fatal(err)
					}
				} else if complete, err := l.Check(t.Context()); err != nil || complete {
					t.Fatal(complete, err)
				}
				l.commit(put("k0", "w"))
				if err := f.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
				l.pass()
				wantContent(t, b, l.copy.Content())
				if complete, err := l.Check(t.Context()); err != nil || !complete {
					t.Error(complete, err)
				}
				if err := f.Read(t.Context()); err != nil || follower.Resets != 1 {
					t.Errorf("%v, %d resets", err, follower.Resets)
				}
				if diff := cmp.Diff(l.copy.Content(), follower.Content()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// A process without a copy finds a log that was purged. It does not become the leader until the loss is accepted.
func TestLoss(t *testing.T) {
	b := logtest.NewBroker(false)
	old := lead(t, b, "old")
	for n := range 5 {
		old.commit(put(fmt.Sprint("k", n), "v"))
	}
	b.Remove(func(p int64) bool { return p < 3 })
	l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{})
	for range 2 {
		wantError(t, l.Claim(t.Context(), false), statelog.ErrIncomplete, "commit 4 does not follow commit 0")
	}
	if err := l.Claim(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	wantError(t, l.Problem(), statelog.ErrIncomplete)
	l.commit(put("new", "1"))
	wantContent(t, b, content(put("new", "1")))
	if l.claim(); l.Problem() != nil {
		t.Errorf("the next claim still has the problem: %v", l.Problem())
	}
}

// A record in the middle is lost. Followers report this, and are complete again after the next pass.
func TestGap(t *testing.T) {
	b := logtest.NewBroker(false)
	l := lead(t, b, "l")
	for n := range 5 {
		l.commit(put(fmt.Sprint("k", n), "v"))
	}
	b.Remove(func(p int64) bool { return p == 3 })
	c := &logtest.Copy{}
	f := statelog.NewFollower(b.Open(), c, statelog.Claim{})
	for range 3 {
		wantError(t, f.Read(t.Context()), statelog.ErrIncomplete, "commit 5 does not follow commit 3")
	}
	if len(c.Content()) != 2 || c.Resets != 1 || f.Behind() != -1 {
		t.Errorf("%v after %d resets, %d behind", c.Content(), c.Resets, f.Behind())
	}
	l.SetInterval(-1 << 20)
	l.pass()
	if err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l.copy.Content(), c.Content()); diff != "" {
		t.Error(diff)
	}
}

// Followers read all commits that were appended, whatever state their copies are in.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logtest.NewBroker(false)
		l := lead(t, b, "l")
		l.SetInterval(1000)
		c := &logtest.Copy{}
		f := statelog.NewFollower(b.Open(), c, statelog.Claim{})
		stopped := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			var err error
			for err == nil {
				if err = f.Read(ctx); err == nil {
					err = f.Wait(ctx)
				}
			}
			stopped <- err
		}()
		for n := range 30 {
			l.commit(put(fmt.Sprint("k", n%4), long(n)))
			if n%3 == 0 {
				l.pass()
			}
			synctest.Wait()
			if diff := cmp.Diff(l.copy.Content(), c.Content()); diff != "" || f.Behind() < 0 || f.Behind() > 3 {
				t.Fatalf("%s, %d behind", diff, f.Behind())
			}
		}
		old := c.Clone()
		for n := range 30 {
			l.commit(put(fmt.Sprint("new", n%4), long(n)))
			l.pass()
		}
		late := statelog.NewFollower(b.Open(), old, statelog.Claim{}) // its commits were truncated
		if err := late.Read(t.Context()); err != nil || old.Resets != 1 {
			t.Errorf("%v, %d resets", err, old.Resets)
		}
		if diff := cmp.Diff(l.copy.Content(), old.Content()); diff != "" {
			t.Error(diff)
		}
		synctest.Wait()
		resets := c.Resets
		b.Recreate()
		l.claimAnyway()
		l.commit(put("k0", "after that"))
		l.pass()
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(l.copy.Content(), c.Content()); diff != "" || c.Resets != resets {
			t.Errorf("%s after %d more resets", diff, c.Resets-resets)
		}
		stop()
		wantError(t, <-stopped, context.Canceled)
	})
}

func (failingLog) Truncate(context.Context, int64) error { return errBroken }

// claimAnyway claims a log that has a problem.
func (l *leader) claimAnyway() {
	l.t.Helper()
	if err := l.Claim(l.t.Context(), true); err != nil || l.Problem() == nil {
		l.t.Fatalf("Claim: %v, problem %v", err, l.Problem())
	}
}

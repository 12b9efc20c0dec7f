package statelog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
)

var errBroken = errors.New("broken")

// leader is a process that has claimed the log, and its copy.
type leader struct {
	*statelog.Writer

	t    *testing.T
	log  *logtest.Memory
	copy *logtest.Copy
}

func put(key, value string) statelog.Pair {
	return statelog.Pair{Bucket: "rows", Source: "s", Key: key, Value: []byte(value)}
}

func content(pairs ...statelog.Pair) logtest.Content {
	c := logtest.Content{}
	c.Apply(pairs)
	return c
}

func newLeader(t *testing.T, b *logtest.Broker, c *logtest.Copy, own statelog.Claim) *leader {
	log := b.Open()
	return &leader{statelog.NewWriter(log, c, own), t, log, c}
}

// lead claims the log with an empty copy.
func lead(t *testing.T, b *logtest.Broker, holder string) *leader {
	t.Helper()
	l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Installation: "i", Holder: holder})
	l.claim()
	return l
}

func (l *leader) claim() {
	l.t.Helper()
	if err := l.Claim(l.t.Context(), false); err != nil {
		l.t.Fatalf("Claim: %v", err)
	}
}

// commit appends pairs and applies them to the copy.
func (l *leader) commit(pairs ...statelog.Pair) {
	l.t.Helper()
	at, err := l.Append(l.t.Context(), pairs)
	if err == nil {
		err = l.copy.Apply(pairs, at)
	}
	if err != nil {
		l.t.Fatalf("Append: %v", err)
	}
}

// pass does all steps of a pass, if one is required.
func (l *leader) pass() (steps int) {
	l.t.Helper()
	for more := true; more; steps++ {
		var err error
		if more, err = l.Refresh(l.t.Context()); err != nil {
			l.t.Fatalf("Refresh: %v", err)
		}
	}
	return steps
}

// wantContent checks what a process without a copy reads.
func wantContent(t *testing.T, b *logtest.Broker, want logtest.Content) {
	t.Helper()
	c := &logtest.Copy{}
	if err := statelog.NewFollower(b.Open(), c, statelog.Claim{}).Read(t.Context()); err != nil {
		t.Fatalf("read the log: %v", err)
	}
	if diff := cmp.Diff(want, c.Content()); diff != "" || c.Point().Partial {
		t.Errorf("a reader has (-want +got) %s\nat %+v", diff, c.Point())
	}
}

func records(t *testing.T, b *logtest.Broker) (n int) {
	t.Helper()
	if _, err := b.Open().Read(t.Context(), 0, func(int64, []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantError(t *testing.T, err, want error, says ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

func TestTerms(t *testing.T) {
	b := logtest.NewBroker(false)
	one := lead(t, b, "one")
	one.commit(put("a", "1"), put("b", "1"))
	one.commit(put("a", "2"), statelog.Pair{Bucket: "rows", Source: "s", Key: "b"})
	other := lead(t, b, "other")
	if diff := cmp.Diff(one.copy.Content(), other.copy.Content()); diff != "" {
		t.Error(diff)
	}
	if other.Term().Epoch != one.Term().Epoch+1 || other.copy.Point().Claim.Holder != "other" {
		t.Errorf("the terms are %+v and %+v", one.Term(), other.Term())
	}
	other.commit(put("c", "3"))
	if _, err := other.Check(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := one.Check(t.Context()) // it has nothing to append
	wantError(t, err, statelog.ErrConflict)
	wantError(t, one.Sync(t.Context()), statelog.ErrConflict)
	one.claim()
	other.claim()
	for range 2 {
		_, err := one.Append(t.Context(), []statelog.Pair{put("a", "stale")})
		wantError(t, err, statelog.ErrConflict)
		wantError(t, one.Sync(t.Context()), statelog.ErrConflict)
	}
	wantContent(t, b, content(put("a", "2"), put("c", "3")))
	one.claim()
	one.commit(put("d", "4"))
	wantContent(t, b, content(put("a", "2"), put("c", "3"), put("d", "4")))
}

// A process neither reads nor writes a log that does not belong to its installation and cluster.
func TestForeignLogs(t *testing.T) {
	own := statelog.Claim{Installation: "i", Cluster: "c", Lease: "n/l", Holder: "owner"}
	for name, test := range map[string]struct {
		other statelog.Claim
		want  error
		says  string
	}{
		"installation": {statelog.Claim{Installation: "other"}, statelog.ErrForeign, `"i" (owner)`},
		"cluster":      {statelog.Claim{Cluster: "other"}, statelog.ErrForeign, "configure another log"},
		"lease":        {statelog.Claim{Lease: "n/m"}, statelog.ErrForeign, "this one has the Lease n/m"},
	} {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(false)
			b.Claimed = 120 // a claim has several records
			newLeader(t, b, &logtest.Copy{}, own).claim()
			before := records(t, b)
			c := logtest.NewCopy(content(put("mine", "1")))
			w := newLeader(t, b, c, test.other)
			f := statelog.NewFollower(b.Open(), c, test.other)
			for range 2 {
				wantError(t, w.Claim(t.Context(), true), test.want, test.says)
				wantError(t, f.Read(t.Context()), test.want, test.says)
			}
			if len(c.Content()) != 1 || c.Resets > 0 || f.Behind() >= 0 || records(t, b) != before {
				t.Errorf("the copy has %v, %d records", c.Content(), records(t, b))
			}
		})
	}
}

func TestNewerRecord(t *testing.T) {
	b := logtest.NewBroker(false)
	l := lead(t, b, "l")
	l.commit(put("a", "1"))
	if _, err := l.log.Append(t.Context(), 2, statelog.Newer()); err != nil {
		t.Fatal(err)
	}
	c := &logtest.Copy{}
	f := statelog.NewFollower(b.Open(), c, statelog.Claim{})
	for range 2 {
		wantError(t, l.Claim(t.Context(), true), statelog.ErrNewer)
		wantError(t, f.Read(t.Context()), statelog.ErrNewer)
	}
	if len(c.Content()) != 1 {
		t.Errorf("what precedes the record was not read: %v", c.Content())
	}
}

// A process takes from the log what it does not know about itself.
func TestIdentity(t *testing.T) {
	b := logtest.NewBroker(false)
	l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Installation: "i", Cluster: "uid", Holder: "first"})
	l.claim()
	l.commit(put("a", "1"))
	other := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Holder: "other"})
	other.claim()
	if got := other.Term(); got.Installation != "i" || got.Cluster != "uid" {
		t.Errorf("%+v", got)
	}
	foreign := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Cluster: "x"})
	wantError(t, foreign.Claim(t.Context(), true), statelog.ErrForeign, "uid (first), this one is x")
	other.commit(put("b", "1"))
	wantContent(t, b, content(put("a", "1"), put("b", "1")))
}

// While a process claims the log, the earlier leader appends another commit.
func TestClaimRacesWithTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logtest.NewBroker(false)
		old := lead(t, b, "old")
		l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Holder: "new"})
		races := 3
		l.log.SetFault(func() logtest.Fault {
			if races--; races >= 0 {
				old.commit(put("a", fmt.Sprint(races)))
			}
			return logtest.None
		})
		l.claim()
		if diff := cmp.Diff(content(put("a", "0")), l.copy.Content()); diff != "" {
			t.Error(diff)
		}
		l.commit(put("b", "1"))
		wantContent(t, b, content(put("a", "0"), put("b", "1")))
	})
}

// Two processes claim the log at the same time. One of them gives up, and its error contains the reason.
func TestTwoClaimsAtOnce(t *testing.T) {
	for _, producers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := logtest.NewBroker(producers)
			lead(t, b, "old").commit(put("a", "1"))
			winner := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Holder: "winner"})
			loser := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Holder: "loser"})
			loser.log.SetFault(func() logtest.Fault {
				loser.log.SetFault(nil)
				winner.claim()
				return logtest.None
			})
			wantError(t, loser.Claim(t.Context(), false), statelog.ErrConflict, `"winner" has claimed it`)
			winner.commit(put("b", "2"))
			_, err := loser.Append(t.Context(), nil)
			wantError(t, err, statelog.ErrConflict)
			wantContent(t, b, content(put("a", "1"), put("b", "2")))
			loser.claim() // if its turn comes later
			loser.commit(put("c", "3"))
			wantContent(t, b, content(put("a", "1"), put("b", "2"), put("c", "3")))
		})
	}
}

// Processes that claim the log at the same time do not fence each other forever: at least one of them succeeds.
func TestManyClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := logtest.NewBroker(true)
		lead(t, b, "old").commit(put("a", "1"))
		results := make(chan error)
		for n := range 5 {
			l := newLeader(t, b, &logtest.Copy{}, statelog.Claim{Holder: fmt.Sprint(n)})
			l.log.SetFault(func() logtest.Fault { time.Sleep(time.Millisecond); return logtest.None })
			go func() { results <- l.Claim(t.Context(), false) }()
		}
		won := 0
		for range 5 {
			if err := <-results; err == nil {
				won++
			} else {
				wantError(t, err, statelog.ErrConflict)
			}
		}
		if won == 0 {
			t.Error("nobody leads")
		}
		wantContent(t, b, content(put("a", "1")))
	})
}

// The broker does not acknowledge anything for a while.
func TestUncertain(t *testing.T) {
	for fault, name := range []string{logtest.NotWritten: "not written", logtest.Written: "written", logtest.Late: "late"} {
		if name == "" {
			continue
		}
		for _, givesUp := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", gives up: ", givesUp), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testUncertain(t, logtest.Fault(fault), givesUp) })
			})
		}
	}
}

func testUncertain(t *testing.T, fault logtest.Fault, givesUp bool) {
	b := logtest.NewBroker(true)
	b.Claimed = 200
	l := lead(t, b, "l")
	before, pairs := records(t, b), []statelog.Pair{put("a", strings.Repeat("long", 200))}
	failures := 4
	l.log.SetFault(func() logtest.Fault {
		if failures--; failures >= 0 {
			return fault
		}
		return logtest.None
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	if givesUp {
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	}
	defer cancel()
	at, err := l.Append(ctx, pairs)
	b.Arrive()
	if givesUp {
		wantError(t, err, logtest.ErrUncertain)
		_, err = l.Append(t.Context(), pairs)
		wantError(t, err, statelog.ErrBehind)
		if err := l.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	} else if err := errors.Join(err, l.copy.Apply(pairs, at)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content(pairs...), l.copy.Content()); diff != "" {
		t.Error(diff)
	}
	if n := records(t, b) - before; n != 6 {
		t.Errorf("%d records of the commit", n)
	}
	l.commit(put("b", "1"))
	wantContent(t, b, content(append(pairs, put("b", "1"))...))
}

// The configuration of a leader changes while the broker does not acknowledge anything. The log names it in the end, once,
// and what follows belongs to the new epoch.
func TestRenameUncertain(t *testing.T) {
	for fault := range logtest.Late + 1 {
		synctest.Test(t, func(t *testing.T) {
			b := logtest.NewBroker(true)
			l := lead(t, b, "l")
			epoch := l.Term().Epoch
			l.log.SetFault(func() logtest.Fault { return fault })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := l.Rename(ctx, "changed", ""); (err != nil) != (fault != logtest.None) {
				t.Errorf("fault %d: %v", fault, err)
			}
			b.Arrive()
			l.log.SetFault(nil)
			for range 2 {
				if err := l.Rename(t.Context(), "changed", ""); err != nil {
					t.Fatalf("fault %d: %v", fault, err)
				}
			}
			l.commit(put("a", "1"))
			wantContent(t, b, content(put("a", "1")))
			if in := l.copy.Point().Claim; in.Configuration != "changed" || in.Epoch != epoch+1 || l.Term() != in {
				t.Errorf("fault %d: the copy has %+v, the term is %+v", fault, in, l.Term())
			}
		})
	}
}

// The local copy cannot be written although the log has the commit. It is brought up to date before the next commit.
func TestFullDisk(t *testing.T) {
	b := logtest.NewBroker(false)
	l := lead(t, b, "l")
	if _, err := l.Append(t.Context(), []statelog.Pair{put("a", "1")}); err != nil {
		t.Fatal(err)
	}
	l.copy.Fail = errBroken
	_, err := l.Append(t.Context(), []statelog.Pair{put("b", "1")})
	wantError(t, err, statelog.ErrBehind)
	for range 2 {
		wantError(t, l.Sync(t.Context()), errBroken)
	}
	l.copy.Fail = nil
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.commit(put("b", "2"))
	if diff := cmp.Diff(content(put("a", "1"), put("b", "2")), l.copy.Content()); diff != "" {
		t.Error(diff)
	}
	if _, err = l.Append(t.Context(), []statelog.Pair{put("c", "1")}); err != nil {
		t.Fatal(err)
	}
	lead(t, b, "other")
	wantError(t, l.Sync(t.Context()), statelog.ErrConflict, `"other" has claimed it`)
}

// Records become smaller until the broker accepts them.
func TestTooLarge(t *testing.T) {
	b := logtest.NewBroker(false)
	b.Claimed, b.Max = 4000, 600
	l := lead(t, b, "l")
	l.commit(put("a", strings.Repeat("x", 5000)))
	n := records(t, b)
	l.commit(put("b", strings.Repeat("x", 1000)))
	if n = records(t, b) - n; n != 3 {
		t.Errorf("the next commit has %d records", n)
	}
	b.Max = 4000
	l.claim()
	parts := 0
	l.log.SetFault(func() logtest.Fault { // the limit is lowered in the middle of a commit
		if parts++; parts == 3 {
			b.Max = 600
		}
		return logtest.None
	})
	l.commit(put("a", strings.Repeat("y", 10_000)))
	want := maps.Clone(l.copy.Content())
	wantContent(t, b, want)
	b.Max = 10
	_, err := l.Append(t.Context(), []statelog.Pair{put("c", "")})
	wantError(t, err, statelog.ErrTooLarge)
	b.Max = 600
	wantContent(t, b, want)
	l.commit(put("d", "1"))
	wantContent(t, b, l.copy.Content())
}

// A record of an earlier leader arrives after the claim of the next leader, because the broker cannot fence. Readers
// drop the record.
func TestLateRecord(t *testing.T) {
	b := logtest.NewBroker(false)
	old := lead(t, b, "old")
	old.commit(put("a", "1"))
	at := old.copy.Point()
	l := lead(t, b, "new")
	follower := &logtest.Copy{}
	f := statelog.NewFollower(b.Open(), follower, statelog.Claim{})
	end, err := l.log.Append(t.Context(), 3, statelog.Changes(at, old.Term().Epoch, put("a", "late")))
	if err != nil {
		t.Fatal(err)
	}
	late := statelog.Changes(l.copy.Point(), old.Term().Epoch, put("a", "late"))
	if _, err := l.log.Append(t.Context(), end, late); err != nil {
		t.Fatal(err)
	}
	if err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content(put("a", "1")), follower.Content()); diff != "" {
		t.Error(diff)
	}
	l.claim()
	l.commit(put("b", "2"))
	wantContent(t, b, content(put("a", "1"), put("b", "2")))
}

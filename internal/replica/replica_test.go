package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A standby takes over from a leader that was killed, and so do a process with the leader's file and a process without
// a file. All have the same rows, watermarks and positions.
func TestTakeOver(t *testing.T) {
	for _, producers := range []bool{false, true} {
		t.Run(fmt.Sprint("producers: ", producers), func(t *testing.T) {
			b := logtest.NewBroker(producers)
			standby := start(t, b.Open(), "")
			stopFollowing, _ := standby.run(standby.Follow)
			one := start(t, b.Open(), "")
			if one.Behind() != unknown || standby.Behind() != unknown {
				t.Errorf("%d and %d behind an empty log", one.Behind(), standby.Behind())
			}
			one.lead()
			stopOne, _ := one.run(one.Maintain)
			for n := range 10 {
				one.mustPut(fmt.Sprint("o", n%4), n+1)
			}
			err := errors.Join(one.Store().SetDestination("s", "d"), one.Store().SetPaused("s", time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			standby.caughtUp(one)
			want := one.content()
			if one.Behind() != 0 || len(want.Rows) != 4 || one.next() != 10 || want.Destination != "d" ||
				want.Paused.IsZero() || want.Installation == "" {
				t.Errorf("%d behind, %+v", one.Behind(), want)
			}
			stopped(t, stopOne)
			stopped(t, stopFollowing)
			if standby.Behind() != unknown {
				t.Errorf("%d behind after Follow has ended", standby.Behind())
			}
			standby.lead().expect(want)
			standby.mustPut("o0", 11)
			want = standby.content()
			one.close()
			same := start(t, b.Open(), one.dir).lead()
			same.expect(want)
			same.mustPut("o1", 12)
			want = same.content()
			another := start(t, b.Open(), "").lead()
			another.expect(want)
			another.mustPut("o2", 13)
			expectLog(t, b.Open(), another.content())
		})
	}
}

// The content of a file that is older than the log is written to the log, and replaces nothing that the log has.
func TestFirstLog(t *testing.T) {
	b, dir := logtest.NewBroker(true), t.TempDir()
	want := newFile(t, dir, 1)
	p := start(t, b.Open(), dir)
	if err := p.Lead(t.Context(), false); err != nil || p.NotReady() == nil {
		t.Errorf("%v, ready without a complete pass: %v", err, p.NotReady())
	}
	p.lead()
	if err := p.NotReady(); err != nil {
		t.Errorf("after a pass: %v", err)
	}
	p.expect(want)
	stop, _ := p.run(p.Maintain)
	expectLog(t, b.Open(), want)
	stopped(t, stop)

	empty := logtest.NewBroker(true)
	first := start(t, empty.Open(), "").lead()
	first.mustPut("a", 1)
	stop, _ = first.run(first.Maintain)
	expectLog(t, empty.Open(), first.content())
	stopped(t, stop)
}

// A file that was changed without its log has a newer state than the log, whether the log contains the whole state or not.
// The log must be removed first.
func TestChangedWithoutLog(t *testing.T) {
	for name, complete := range map[string]bool{"complete": true, "without a pass": false} {
		t.Run(name, func(t *testing.T) {
			b, first := logtest.NewBroker(true), start(t, logtest.NewBroker(true).Open(), "").lead()
			first.close()
			alone := func(object string, version int) content {
				t.Helper()
				file, err := checkpoint.Open(checkpoint.Options{Path: first.dir, NoSync: true})
				if err != nil {
					t.Fatal(err)
				}
				p := &process{Copy: &Copy{store: file}, t: t}
				p.mustPut(object, version)
				want := p.content()
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
				return want
			}
			alone("a", 1)
			p := start(t, b.Open(), first.dir)
			if err := p.Lead(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if complete {
				p.lead()
			}
			p.close()
			want := alone("b", 2)
			p = start(t, b.Open(), first.dir)
			wantError(t, "Follow", p.Follow(t.Context()), statelog.ErrDiverged)
			wantError(t, "Lead", p.Lead(t.Context(), true), statelog.ErrDiverged)
			p.expect(want)
			b.Recreate()
			p.lead().expect(want)
			expectLog(t, b.Open(), want)
		})
	}
}

// The log is purged while a process leads. It writes everything again.
func TestPurge(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "").lead()
	p.mustPut("a", 1)
	standby := start(t, b.Open(), "")
	stopStandby, _ := standby.run(standby.Follow)
	stop, _ := p.run(p.Maintain)
	standby.caughtUp(p)
	b.Remove(func(int64) bool { return true })
	expectLog(t, b.Open(), p.content())
	p.mustPut("b", 2)
	standby.caughtUp(p)
	standby.expect(p.content())
	stopped(t, stop)
	stopped(t, stopStandby)
}

// The log is deleted and created again. The term ends. Only a leader that accepts the loss continues.
func TestLogCreatedAgain(t *testing.T) {
	b := logtest.NewBroker(false)
	p := start(t, b.Open(), "").lead()
	p.mustPut("a", 1)
	want := p.content()
	_, ended := p.run(p.Maintain)
	b.Recreate()
	wantError(t, "Maintain", result(t, ended), statelog.ErrConflict)
	wantError(t, "commit", p.put("a", 2), statelog.ErrConflict)
	wantError(t, "Lead", p.Lead(t.Context(), false), statelog.ErrIncomplete)
	wantError(t, "commit", p.put("a", 2), statelog.ErrConflict)
	if err := p.Lead(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if p.NotReady() == nil {
		t.Error("the new log has everything before a pass is complete")
	}
	stop, _ := p.run(p.Maintain)
	expectLog(t, b.Open(), want)
	stopped(t, stop)
	if err := p.NotReady(); err != nil {
		t.Error(err)
	}
}

// laterVersion is a log to which a later version writes.
type laterVersion struct{ statelog.Log }

func (l *laterVersion) Append(ctx context.Context, after int64, record []byte) (int64, error) {
	record = slices.Clone(record)
	record[0]++
	sum := crc32.Update(crc32.Checksum(record[:1], castagnoli), castagnoli, record[5:])
	binary.LittleEndian.PutUint32(record[1:], sum)
	return l.Log.Append(ctx, after, record)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A process does not use the log of another cluster, or one that a newer version writes.
func TestForeignLog(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "").lead()
	p.mustPut("a", 1)
	other := func(o *Options) { o.Claim.Cluster = "other" }
	use := func(wanted error, p *process) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantError(t, "Follow", p.Follow(ctx), wanted)
		wantError(t, "Lead", p.Lead(ctx, true), wanted)
		wantError(t, "commit", p.put("b", 2), statelog.ErrConflict)
		if p.Behind() != unknown {
			t.Errorf("%d behind", p.Behind())
		}
	}
	foreign := start(t, b.Open(), "", other)
	empty := foreign.content()
	use(statelog.ErrForeign, foreign)
	foreign.expect(empty)
	p.mustPut("c", 3)
	joined := start(t, b.Open(), "", func(o *Options) { o.Claim.Cluster = "" })
	stop, _ := joined.run(joined.Follow)
	joined.caughtUp(p)
	stopped(t, stop)
	joined.claim.Cluster = "other" // as when the API server has answered
	use(statelog.ErrForeign, joined)
	p.mustPut("c", 4)
	want := p.content()

	newer := &laterVersion{b.Open()}
	if err := statelog.NewWriter(newer, &logtest.Copy{}, statelog.Claim{}).Claim(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	refused := files.NewerFormatError{What: "the state log", Format: files.Format + 1}
	wantError(t, "Maintain", p.Maintain(t.Context()), refused)
	p.expect(want)
	use(refused, start(t, b.Open(), ""))
	use(refused, p)
}

// If nothing changes, the leader appends commits nevertheless, and standbys see them.
func TestQuietLog(t *testing.T) {
	b := logtest.NewBroker(true)
	p, standby := start(t, b.Open(), "").lead(), start(t, b.Open(), "")
	p.mustPut("a", 1)
	want := p.content()
	stop, _ := p.run(p.Maintain)
	stopStandby, _ := standby.run(standby.Follow)
	standby.caughtUp(p)
	for range 3 {
		number, at := p.Store().Copy().Point().Number, standby.committed.Load()
		eventually(t, "another commit", func() bool {
			return p.Store().Copy().Point().Number > number && standby.committed.Load() > at && standby.Ready()
		})
	}
	p.log.down.Store(true)
	<-time.After(5 * patience) // an append may be running
	at := p.committed.Load()
	<-time.After(5 * p.timing.check)
	if now := p.committed.Load(); now > at {
		t.Errorf("%d ms later, there is a commit that the log does not have", now-at)
	}
	p.log.down.Store(false)
	eventually(t, "another commit", func() bool { return p.committed.Load() > at })
	stopped(t, stop)
	stopped(t, stopStandby)
	p.expect(want)
	standby.expect(want)
}

// A second installation that has no state of its own does not use the log, because its replicas have another Lease. The
// first one notices nothing.
func TestSecondInstallation(t *testing.T) {
	b := logtest.NewBroker(true)
	with := func(lease string) func(*Options) { return func(o *Options) { o.Claim.Lease = lease } }
	first := start(t, b.Open(), "", with("a/bridge")).lead()
	first.mustPut("a", 1)
	stop, _ := first.run(first.Maintain)
	second := start(t, b.Open(), "", with("b/bridge"))
	for range 2 { // it is started again with its directory
		_, ended := second.run(second.Follow)
		wantError(t, "Follow", result(t, ended), statelog.ErrForeign)
		wantError(t, "Lead", second.Lead(t.Context(), true), statelog.ErrForeign)
		second.close()
		second = start(t, b.Open(), second.dir, with("b/bridge"))
	}
	first.mustPut("b", 2)
	stopped(t, stop)
	first.mustPut("c", 3)
	start(t, b.Open(), "", with("a/bridge")).lead().expect(first.content())
}

// The Lease of an installation gets another name. Its processes use the log only after it was purged: the checkpoint of
// one of them is then written to the log.
func TestAnotherLease(t *testing.T) {
	b := logtest.NewBroker(true)
	with := func(lease string) func(*Options) { return func(o *Options) { o.Claim.Lease = lease } }
	p := start(t, b.Open(), "", with("a/bridge")).lead()
	p.mustPut("a", 1)
	want := p.content()
	p.close()
	p = start(t, b.Open(), p.dir, with("b/bridge"))
	_, ended := p.run(p.Follow)
	wantError(t, "Follow", result(t, ended), statelog.ErrForeign)
	wantError(t, "Lead", p.Lead(t.Context(), true), statelog.ErrForeign)
	b.Remove(func(int64) bool { return true })
	l := newLease()
	m := l.join(p)
	m.awaitTerm(1)
	expectLog(t, b.Open(), want)
	stopped(t, m.stop)
	wantError(t, "Lead", start(t, b.Open(), "", with("a/bridge")).Lead(t.Context(), true), statelog.ErrForeign)
}

// Two processes lead. The one that claimed the log first must see that its term has ended, even if it changes nothing.
// No commit that was acknowledged is lost.
func TestTwoLeaders(t *testing.T) {
	for name, commits := range map[string]bool{"idle": false, "commits": true} {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			one, other := start(t, b.Open(), ""), start(t, b.Open(), "")
			leader, standby, last := one, other, 0
			for range 4 {
				leader.lead()
				_, ended := leader.run(leader.Maintain)
				stopFollowing, _ := standby.run(standby.Follow)
				leader.mustPut("a", last+1)
				last++
				standby.caughtUp(leader)
				stopped(t, stopFollowing)
				committed := make(chan int, 1)
				go func(n int) { // the engine of the leader
					for commits && leader.put("a", n+1) == nil {
						n++
					}
					committed <- n
				}(last)
				standby.lead()
				wantError(t, "Maintain", result(t, ended), statelog.ErrConflict)
				wantError(t, "commit", leader.put("b", 1), statelog.ErrConflict)
				if last = <-committed; leader.Behind() != unknown {
					t.Errorf("%d behind after the term", leader.Behind())
				}
				now := standby.next()
				if now < last || now > last+1 { // the result of the last commit is unknown
					t.Errorf("the next leader has %d, not %d", now, last)
				}
				last = now
				leader, standby = standby, leader
			}
			expectLog(t, b.Open(), leader.content())
		})
	}
}

// Maintain returns as soon as a commit has failed because the term has ended.
func TestMaintainNoticesFailedCommit(t *testing.T) {
	b := logtest.NewBroker(false)
	rarely := func(o *Options) { o.timing.pause, o.timing.check = time.Hour, time.Hour }
	p := start(t, b.Open(), "", rarely).lead()
	_, ended := p.run(p.Maintain)
	start(t, b.Open(), "").lead()
	wantError(t, "commit", p.put("a", 1), statelog.ErrConflict)
	wantError(t, "Maintain", result(t, ended), statelog.ErrConflict)
}

// A process follows after it has led, and leads again. Meanwhile its store can't be changed.
func TestFollowAfterTerm(t *testing.T) {
	b := logtest.NewBroker(true)
	memory := b.Open()
	p := start(t, memory, "").lead()
	p.mustPut("a", 1)
	memory.SetFault(func() logtest.Fault { p.log.hangs.Store(true); return logtest.Written })
	p.mustPut("a", 2)
	memory.SetFault(nil)
	p.log.hangs.Store(false)
	stop, _ := p.run(p.Follow)
	eventually(t, "it has read its own last commit", func() bool { return !p.leads.Load() && p.Ready() })
	wantError(t, "commit", p.put("a", 3), statelog.ErrConflict)
	other := start(t, b.Open(), "").lead()
	other.mustPut("b", 4)
	p.caughtUp(other)
	p.expect(other.content())
	stopped(t, stop)
	p.lead().mustPut("c", 5)
	wantError(t, "commit", other.put("b", 6), statelog.ErrConflict)
	expectLog(t, b.Open(), p.content())
	p.close()
	wantError(t, "commit", p.put("c", 6), statelog.ErrConflict)
}

// Follow continues after the broker was unavailable and after commits were lost. Behind shows that the copy may be
// behind.
func TestFollowSurvives(t *testing.T) {
	b := logtest.NewBroker(true)
	leader := start(t, b.Open(), "").lead()
	leader.mustPut("a", 1)
	p := start(t, b.Open(), "")
	p.log.down.Store(true)
	stop, _ := p.run(p.Follow)
	p.log.down.Store(false)
	p.caughtUp(leader)

	p.log.down.Store(true)
	leader.mustPut("a", 2)
	eventually(t, "the copy may be behind", func() bool { return p.Behind() == unknown })
	p.log.down.Store(false)
	p.caughtUp(leader)
	p.expect(leader.content())

	p.log.down.Store(true)
	leader.mustPut("a", 3)
	eventually(t, "the copy may be behind", func() bool { return p.Behind() == unknown })
	lost := leader.Store().Copy().Point().Position
	b.Remove(func(position int64) bool { return position == lost })
	leader.mustPut("a", 4)
	p.log.down.Store(false)
	before := p.content()
	<-time.After(patience)
	if p.expect(before); p.Behind() != unknown {
		t.Errorf("%d behind, although a commit is missing", p.Behind())
	}
	again := start(t, b.Open(), "")
	wantError(t, "Lead", again.Lead(t.Context(), false), statelog.ErrIncomplete)
	leader.lead() // because the attempt has fenced it
	if p.expect(before); p.Behind() != unknown {
		t.Errorf("%d behind, although a commit is missing", p.Behind())
	}
	b.Remove(func(int64) bool { return true }) // so that the leader writes everything again
	stopLeader, _ := leader.run(leader.Maintain)
	p.caughtUp(leader)
	p.expect(leader.content())
	stopped(t, stopLeader)
	stopped(t, stop)
}

// Lead ends with its context, or when the broker does not respond after the claim. Then this process does not lead, and
// Lead can be repeated.
func TestLeadFails(t *testing.T) {
	b := logtest.NewBroker(true)
	p := start(t, b.Open(), "")
	p.log.hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wantError(t, "Lead", p.Lead(ctx, false), context.DeadlineExceeded)
	p.log.hangs.Store(false)
	appends := 0
	hang := func([]byte) { appends++; p.log.hangs.Store(appends > 1) }
	p.log.before.Store(&hang)
	ctx, cancel = context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	wantError(t, "Lead", p.Lead(ctx, false), context.DeadlineExceeded)
	p.log.before.Store(nil)
	p.log.hangs.Store(false)
	wantError(t, "commit", p.put("a", 1), statelog.ErrConflict)
	p.lead().mustPut("a", 1)
	expectLog(t, b.Open(), p.content())
}

// The configuration of a leader changes: the log names the changed one from then on, without another term for the
// engine. A standby that has it prefers to take over, and one that does not lets others try first.
func TestSetConfiguration(t *testing.T) {
	for _, producers := range []bool{false, true} {
		t.Run(fmt.Sprint("producers: ", producers), func(t *testing.T) {
			b := logtest.NewBroker(producers)
			patient := func(o *Options) { o.Patience = time.Hour }
			p, standby := start(t, b.Open(), "").lead(), start(t, b.Open(), "", patient)
			stopStandby, _ := standby.run(standby.Follow)
			stop, _ := p.run(p.Maintain)
			p.mustPut("a", 1)
			epoch, ended := p.Epoch(), p.journal.ended
			for _, hash := range []string{"one", "two"} {
				for _, r := range []*process{p, standby} {
					if err := r.SetConfiguration(t.Context(), hash); err != nil {
						t.Fatal(err)
					}
				}
				p.mustPut("b", 2)
				standby.caughtUp(p)
				if in := standby.Store().Copy().Point().Claim.Configuration; in != hash || !standby.Eligible() {
					t.Errorf("the log names %q, want %q, eligible: %t", in, hash, standby.Eligible())
				}
			}
			if p.Epoch() != epoch+2 || p.journal.ended != ended || p.Behind() != 0 {
				t.Errorf("epoch %d, was %d; %d behind", p.Epoch(), epoch, p.Behind())
			}
			if err := p.SetConfiguration(t.Context(), "two"); err != nil || p.Epoch() != epoch+2 {
				t.Errorf("nothing has changed: %v, epoch %d", err, p.Epoch())
			}
			if err := standby.SetConfiguration(t.Context(), "three"); err != nil || standby.Eligible() {
				t.Errorf("%v, eligible with another configuration than the leader: %t", err, standby.Eligible())
			}
			stopped(t, stop)
			expectLog(t, b.Open(), p.content())
			stopped(t, stopStandby)
		})
	}
}

// A process that another one has replaced does not take the log back when its configuration changes.
func TestSetConfigurationTooLate(t *testing.T) {
	for _, producers := range []bool{false, true} {
		b := logtest.NewBroker(producers)
		p := start(t, b.Open(), "").lead()
		next := start(t, b.Open(), "").lead()
		if err := p.SetConfiguration(t.Context(), "changed"); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("producers: %t: %v", producers, err)
		}
		next.mustPut("a", 1)
	}
}

// While the broker of the log is unavailable, the leader uses a changed configuration anyway. The log names it when the
// broker is back.
func TestSetConfigurationWithoutTheLog(t *testing.T) {
	for name, o := range outages() {
		t.Run(name, func(t *testing.T) {
			b := logtest.NewBroker(true)
			memory := b.Open()
			p := start(t, memory, "").lead()
			p.mustPut("a", 1)
			o.begin(p, memory)
			p.mustPut("a", 2)
			if err := p.SetConfiguration(t.Context(), "changed"); err != nil {
				t.Error(err)
			}
			o.end(p, memory)
			stop, _ := p.run(p.Maintain)
			eventually(t, "the log names the configuration", func() bool {
				return p.Store().Copy().Point().Claim.Configuration == "changed"
			})
			p.mustPut("b", 3)
			stopped(t, stop)
			expectLog(t, b.Open(), p.content())
		})
	}
}

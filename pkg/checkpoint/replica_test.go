package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/deltabridge/deltabridge/test/scale"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// process is a store whose changes are written to a log, or that follows the log of another store.
type process struct {
	*Store

	t      testing.TB
	broker *logtest.Broker
	writer *statelog.Writer   // nil while it follows
	follow *statelog.Follower // nil while it leads
	cut    func() bool        // whether a transaction ends when only the log has it
	pairs  []statelog.Pair    // of the last transaction
	away   bool               // the broker of the log is unavailable
}

func startProcess(t testing.TB, broker *logtest.Broker, o Options) *process {
	t.Helper()
	p := &process{t: t, broker: broker}
	if o.Path == "" {
		o.Path = t.TempDir()
	}
	o.Log, o.ClusterName, o.NoSync, o.Logger = p, "test", true, slog.New(slog.DiscardHandler)
	var err error
	if p.Store, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.standBy()
	return p
}

func (p *process) Sync() error {
	if p.writer == nil {
		return errors.New("does not lead")
	}
	if p.isDetached() {
		return nil
	}
	return p.writer.Sync(p.t.Context())
}

func (p *process) Append(pairs []statelog.Pair) (statelog.Point, error) {
	p.pairs = pairs
	if at := p.Copy().Point(); p.away || at.Unsent != "" {
		at.Unsent = cmp.Or(at.Unsent, "outage")
		return at, nil
	}
	at, err := p.writer.Append(p.t.Context(), pairs)
	if err == nil && p.cut != nil && p.cut() {
		err = errCut
	}
	return at, err
}

// isDetached reports whether the file has changes that the log does not have.
func (p *process) isDetached() bool { return p.noted().Point.Unsent != "" }

// send sends the next part of these changes. meanwhile is called before the log has the part. If it returns false, the
// file does not note what was sent.
func (p *process) send(maxBytes int, meanwhile func() bool) {
	p.t.Helper()
	part, err := p.Unsent(maxBytes)
	if err != nil {
		p.t.Fatal(err)
	}
	noted := meanwhile()
	if _, err = p.writer.Append(p.t.Context(), part.Pairs); err == nil && noted {
		err = p.Sent(part, p.writer.Point())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) standBy() {
	p.writer, p.follow = nil, statelog.NewFollower(p.broker.Open(), p.Copy(), statelog.Claim{Holder: "standby"})
}

func (p *process) lead() *process {
	p.t.Helper()
	p.follow = nil
	p.writer = statelog.NewWriter(p.broker.Open(), p.Copy(), statelog.Claim{Holder: "leader"})
	if err := p.Exclusively(func() error { return p.writer.Claim(p.t.Context(), false) }); err != nil {
		p.t.Fatal(err)
	}
	repeat(p.t, p.TakeOver)
	repeat(p.t, func() error { return p.BeginCluster(testUID) })
	return p
}

// refresh does a step of a pass.
func (p *process) refresh() (more bool) {
	p.t.Helper()
	if err := p.Exclusively(func() (err error) { more, err = p.writer.Refresh(p.t.Context()); return err }); err != nil {
		p.t.Fatal(err)
	}
	return more
}

// read applies the log, and reports whether the process is then up to date.
func (p *process) read() (complete bool) {
	p.t.Helper()
	err := p.follow.Read(p.t.Context())
	if err != nil && !errors.Is(err, statelog.ErrIncomplete) {
		p.t.Fatal(err)
	}
	return err == nil && p.follow.Behind() >= 0
}

// raw returns the content of a file, except its point.
func raw(t testing.TB, s *Store) map[string]string {
	t.Helper()
	content := map[string]string{}
	var walk func(path string, b *bbolt.Bucket) error
	walk = func(path string, b *bbolt.Bucket) error {
		return b.ForEach(func(key, value []byte) error {
			if value == nil {
				return walk(path+string(key)+" ", b.Bucket(key))
			}
			content[path+string(key)] = string(value)
			return nil
		})
	}
	err := s.view(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name)+" ", b) })
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(content, bucketStore+" "+keyPoint)
	return content
}

// wantSame checks that a copy has the same content as the leader.
func wantSame(t testing.TB, leader, replica *Store) {
	t.Helper()
	if diff := gocmp.Diff(leader.noted(), replica.noted(), cmpopts.IgnoreFields(storeRecord{}, "Point"),
		cmpopts.EquateEmpty()); diff != "" {
		t.Fatal(diff)
	}
	if diff := gocmp.Diff(raw(t, leader), raw(t, replica)); diff != "" {
		t.Fatal(diff)
	}
}

// replicated consists of a leader and copies of it, one of which follows from the beginning.
type replicated struct {
	*model

	t      testing.TB
	s      *script
	broker *logtest.Broker
	leader *process
	copies []*process
	events spilled // of sink-0
	ops    []int   // that step does; the first one changes something
	n      int
}

func (r *replicated) start(path string) *process {
	p := startProcess(r.t, r.broker, Options{Path: path})
	p.cut = func() bool { return r.s.below(12) == 11 }
	return p
}

// step does something to the leader or to a copy.
func (r *replicated) step(op int) {
	t, s, l := r.t, r.s, r.leader
	switch op {
	case 0: // the leader starts again
		l.Close()
		path := l.opts.Path
		if s.below(2) == 1 && l.Copy().Point().Running.Number == 0 && !l.isDetached() {
			path = ""
		}
		r.leader = r.start(path).lead()
		r.events.log = nil
	case 1:
		r.forget(t, l.Store, s)
	case 2:
		r.list(t, l.Store, s, r.n)
	case 3:
		repeat(t, func() error { return l.SetDestination("sink-0", fmt.Sprint(r.n)) })
		positions := map[string]sinks.Positions{"sink-0": {fmt.Sprint(s.below(3)): {Next: int64(r.n)}}}
		repeat(t, func() error { return l.AddPositions(positions) })
		repeat(t, func() error { _, _, err := l.SetWatch(fmt.Sprint(s.below(2))); return err })
	case 4: // another pass is necessary
		r.attach()
		r.sync()
		r.broker.Remove(func(int64) bool { return true })
		if _, err := l.writer.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.refresh()
	case 5:
		r.attach()
		for range s.below(4) {
			l.refresh()
		}
	case 6: // a copy starts again, perhaps without its file
		c := &r.copies[s.below(len(r.copies))]
		(*c).Close()
		*c = r.start([]string{"", (*c).opts.Path}[s.below(2)])
	case 7: // a copy leads
		c := &r.copies[s.below(len(r.copies))]
		if r.attach(); (*c).read() {
			l.standBy()
			*c, r.leader = l, (*c).lead()
			r.events.log = nil
		}
	case 8:
		r.compare()
	case opOutage:
		r.outage()
	case opSpill:
		r.events.step(t, l.Store, s, r.n)
	default:
		r.model.commit(t, l.Store, s, r.n)
	}
	r.n++
}

// outage makes the broker unavailable, or makes the leader send a part of what has changed since. The leader may go on
// meanwhile, and may start again when the log has the part.
func (r *replicated) outage() {
	l, s := r.leader, r.s
	if !l.isDetached() {
		r.sync()
		l.away = true
		return
	}
	killed := s.below(3) == 0
	l.send(1+s.below(20)*500, func() bool {
		for range s.below(4) {
			r.step(r.ops[0])
		}
		return !killed
	})
	for _, c := range r.copies {
		if c.read() {
			wantUsable(r.t, c.Store)
		}
	}
	if killed {
		l.Close()
		r.leader = r.start(l.opts.Path).lead()
		r.events.log = nil
	}
	r.leader.away = r.leader.away && r.leader.isDetached()
}

// wantUsable checks that a copy has all rows of its sources, and all events that count.
func wantUsable(t testing.TB, s *Store) {
	t.Helper()
	states, err := s.States()
	for _, state := range states {
		_, _, failed := s.Load(state.Source.Name)
		err = errors.Join(err, failed)
	}
	if _, lost := readEvents(t, eventsOf(t, s, "sink-0")); err != nil || len(lost) > 0 {
		t.Fatal(err, lost)
	}
}

// attach ends an outage.
func (r *replicated) attach() {
	for r.leader.isDetached() {
		r.leader.send(2000, func() bool { return true })
	}
	r.leader.away = false
}

// sync writes a commit to the leader's file that may be only in the log.
func (r *replicated) sync() {
	r.t.Helper()
	repeat(r.t, func() error { return r.leader.Commit(nil, nil, nil) })
}

func (r *replicated) compare() {
	r.t.Helper()
	r.attach()
	r.sync()
	for _, c := range r.copies {
		if c.read() {
			wantSame(r.t, r.leader.Store, c.Store)
			r.model.check(r.t, c.Store)
		}
	}
}

const opSpill, opOutage = 12, 13

// Operations of replicated.step.
func allButSpill() []int { return []int{11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, opOutage, opOutage} }

func mostlySpill() []int {
	return append(slices.Repeat([]int{opSpill}, 9), 0, 3, 4, 5, 6, 7, 8, opOutage, opOutage, opOutage)
}

func replicate(t testing.TB, s *script, ops []int) {
	r := &replicated{model: newModel(), t: t, s: s, broker: logtest.NewBroker(true), ops: ops}
	r.events.data = map[uint64]string{}
	r.broker.Max, r.broker.Claimed = 10_000, 10_000
	r.leader = r.start("").lead()
	r.copies = []*process{r.start(""), r.start("")}
	for len(s.b) > 0 {
		r.step(ops[s.below(len(ops))])
		r.model.check(t, r.leader.Store)
	}
	r.attach()
	for r.leader.refresh() {
	}
	r.copies = append(r.copies, r.start(""))
	r.compare()
	if !r.copies[len(r.copies)-1].read() {
		t.Error("a new copy is not complete")
	}
}

// TestReplicas changes a leader and interrupts its transactions between log and file. Copies follow, start in the
// middle of a pass, and become the leader.
func TestReplicas(t *testing.T) {
	for seed := range byte(scale.Of(1, 4)) {
		replicate(t, &script{noise(seed, 1600)}, allButSpill())
		replicate(t, &script{noise(seed, 2000)}, mostlySpill())
	}
}

func FuzzReplicas(f *testing.F) {
	f.Add([]byte{9, 0, 3, 0, 1, 2, 1, 0, 11, 0, 4, 3, 9, 5, 1, 1, 1, 0, 7, 1, 2, 8, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		replicate(t, &script{b}, allButSpill())
	})
}

func FuzzReplicasOfEvents(f *testing.F) {
	f.Add([]byte{0, 1, 5, 40, 8, 90, 1, 1, 0, 9, 0, 2, 1, 1, 1, 14, 0, 1, 3, 7, 7, 7, 7, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		replicate(t, &script{b}, mostlySpill())
	})
}

package statelog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/test/scale"
)

// world consists of a broker, the processes that write to its log, and the content that the log must have.
type world struct {
	*testing.T
	*rand.Rand

	broker    *logtest.Broker
	processes []*process
	values    int

	leader    *process          // has claimed the log last
	model     logtest.Content   // all commits that were acknowledged
	uncertain logtest.Content   // the same and the last commit, if its result is unknown
	history   map[string]string // content of each commit, by number and chain
	attempted map[string]bool   // contents with a commit of which the result was unknown
	accepted  map[string]bool   // contents of claims of which the result was unknown, and which accepted a loss
	harmed    uint64            // commits up to this one were removed from the log, and no pass has begun after it
	steps     map[string]int    // how often each step was taken, with its result
	trace     []string
}

// process is a process. After it has ended, only its local copy remains.
type process struct {
	name     string
	log      *logtest.Memory
	copy     *logtest.Copy
	writer   *statelog.Writer
	follower *statelog.Follower
	accepted bool // a loss, by a claim of which the result is unknown
}

func newWorld(t *testing.T, r *rand.Rand) *world {
	w := &world{
		T: t, Rand: r, broker: logtest.NewBroker(r.IntN(2) == 0), model: logtest.Content{},
		history: map[string]string{"": fmt.Sprint(logtest.Content{})}, attempted: map[string]bool{},
		accepted: map[string]bool{}, steps: map[string]int{},
	}
	w.broker.Claimed = 100 + r.IntN(1000)
	w.broker.Max = min(w.broker.Claimed, 200+r.IntN(500))
	for n := range 3 {
		w.processes = append(w.processes, &process{name: fmt.Sprint("p", n), log: w.broker.Open(), copy: &logtest.Copy{}})
	}
	if r.IntN(2) == 0 { // the first process has a copy from before it had a log
		w.model.Apply(w.pairs(10))
		w.processes[0].copy = logtest.NewCopy(w.model)
		w.harmed = 1
		w.claim(w.processes[0])
	}
	return w
}

// pairs returns random changes.
func (w *world) pairs(n int) (pairs []statelog.Pair) {
	for range n {
		p := statelog.Pair{Bucket: "rows", Source: fmt.Sprint("s", w.IntN(3))}
		switch w.IntN(10) {
		case 0: // all rows
		case 1, 2:
			p.Key = fmt.Sprint("k", w.IntN(8))
		default:
			w.values++
			p.Key, p.Value = fmt.Sprint("k", w.IntN(8)), fmt.Append(nil, w.values, strings.Repeat(".", w.IntN(200)))
		}
		pairs = append(pairs, p)
	}
	return pairs
}

func commitName(p statelog.Point) string { return fmt.Sprint(p.Number, " ", p.Chain) }

func (w *world) fatalf(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace, "\n"))
}

// step records a step and its result.
func (w *world) step(p *process, name string, err error) {
	result := "ok"
	for _, e := range []error{
		statelog.ErrIncomplete, statelog.ErrConflict, statelog.ErrBehind, statelog.ErrTooLarge, context.DeadlineExceeded,
		errDisk, logtest.ErrUncertain,
	} {
		if errors.Is(err, e) {
			result = e.Error()
			break
		}
	}
	if err != nil && result == "ok" {
		w.fatalf("%s: %s: %v", p.name, name, err)
	}
	w.steps[name+": "+result]++
	w.trace = append(w.trace, fmt.Sprintf("%s %s: %v; at %+v", p.name, name, err, p.copy.Point()))
}

var errDisk = errors.New("no space left on device")

// fault makes some calls of Append fail, and delivers late records.
func (w *world) fault() logtest.Fault {
	if w.IntN(4) == 0 {
		w.broker.Arrive()
	}
	if w.IntN(4) == 0 {
		return logtest.Fault(1 + w.IntN(3))
	}
	return logtest.None
}

// context returns a context that ends after an Append was repeated a few times.
func (w *world) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.Context(), time.Duration(w.IntN(500))*time.Millisecond)
}

// start restarts a process. It keeps only its copy, which it loses too if lost is true.
func (w *world) start(p *process, lost bool) {
	p.log, p.writer, p.follower, p.copy = w.broker.Open(), nil, nil, p.copy.Clone()
	if lost {
		p.copy = &logtest.Copy{}
	}
	p.log.SetFault(w.fault)
}

func (w *world) claim(p *process) {
	p.follower = nil
	p.log.SetFault(w.fault)
	if p.writer == nil {
		p.writer = statelog.NewWriter(p.log, p.copy, statelog.Claim{Holder: p.name, Cluster: "c", Started: time.Now()})
		p.writer.SetInterval(int64(w.IntN(4000)))
	}
	ctx, cancel := w.context()
	defer cancel()
	empty := p.copy.Point().Number == 0
	err := p.writer.Claim(ctx, w.IntN(2) == 0)
	w.step(p, "claim", err)
	content := fmt.Sprint(p.copy.Content())
	problem := p.writer.Problem()
	if err != nil {
		if problem != nil || empty && w.harmed > 0 { // the log may have the claim
			p.accepted = problem != nil
			w.attempted[content], w.accepted[content] = true, true
		}
		if errors.Is(err, statelog.ErrIncomplete) && w.harmed == 0 {
			w.fatalf("%s found a problem in a log that has none: %v", p.name, err)
		}
		return
	}
	switch {
	case problem != nil && (w.harmed == 0 && !p.accepted || !errors.Is(problem, statelog.ErrIncomplete)):
		w.fatalf("%s found a problem in a log that has none: %v", p.name, problem)
	case problem != nil:
		w.steps["claim: with a problem"]++
	case w.accepted[content]:
		w.steps["claim: after a claim with a problem"]++
	case empty && w.harmed > 0 && p.copy.Point().Number == 1:
		w.steps["claim: of a log that is like a new one"]++
	case content != fmt.Sprint(w.model) && (w.uncertain == nil || content != fmt.Sprint(w.uncertain)):
		w.fatalf("%s has %s\nwant %v\nor   %v", p.name, content, w.model, w.uncertain)
	}
	if content != fmt.Sprint(logtest.Content{}) {
		w.check(p.name, p.copy, true)
	}
	p.accepted = false
	w.leader, w.model, w.uncertain = p, maps.Clone(p.copy.Content()), nil
	if w.model == nil {
		w.model = logtest.Content{}
	}
	w.note(p)
}

// note records the content of the last commit of a process.
func (w *world) note(p *process) {
	if content := fmt.Sprint(p.copy.Content()); content != fmt.Sprint(w.model) {
		w.fatalf("%s leads and has %s\nwant %v", p.name, content, w.model)
	}
	at := p.copy.Point()
	if w.history[commitName(at)] = fmt.Sprint(w.model); at.Pass.Number > w.harmed {
		w.harmed = 0
	}
}

// check checks that a copy has the content of its point.
func (w *world) check(name string, c *logtest.Copy, claimed bool) {
	w.Helper()
	at, content := c.Point(), fmt.Sprint(c.Content())
	if at.Number == 0 || at.Partial || w.attempted[content] {
		return
	}
	want, known := w.history[commitName(at)]
	if known && content != want {
		w.fatalf("%s has %s\nwant %s", name, content, want)
	}
	if !known && !claimed { // a claim or a chunk of a pass that was not acknowledged
		for _, earlier := range w.history {
			known = known || earlier == content
		}
		if !known {
			w.fatalf("%s has %s at %s, which was never written", name, content, commitName(at))
		}
	}
}

// lead makes a process do a step as the leader, even if the process is no longer the leader.
func (w *world) lead(p *process, name string, step func(ctx context.Context) error) bool {
	ctx, cancel := w.context()
	defer cancel()
	if w.IntN(10) == 0 {
		p.copy.Fail = errDisk
	}
	err := p.writer.Sync(ctx)
	if err == nil {
		if p == w.leader && w.uncertain != nil {
			w.model, w.uncertain = w.uncertain, nil
		}
		err = step(ctx)
	}
	p.copy.Fail = nil
	w.step(p, name, err)
	if errors.Is(err, statelog.ErrConflict) {
		p.writer = nil
	}
	if err == nil && p == w.leader {
		w.note(p)
	}
	return err == nil
}

func (w *world) append(p *process) {
	pairs := w.pairs(w.IntN(6))
	after := maps.Clone(w.model)
	w.lead(p, "append", func(ctx context.Context) error {
		after = maps.Clone(w.model)
		after.Apply(pairs)
		at, err := p.writer.Append(ctx, pairs)
		if p != w.leader {
			if err == nil {
				w.fatalf("%s has appended, but %s leads", p.name, w.leader.name)
			}
			return err
		}
		if err == nil { // also if the disk is full
			w.model, w.history[commitName(at)] = after, fmt.Sprint(after)
			return p.copy.Apply(pairs, at)
		}
		if !errors.Is(err, statelog.ErrTooLarge) {
			w.uncertain, w.attempted[fmt.Sprint(after)] = after, true
		}
		return err
	})
}

func (w *world) refresh(p *process) {
	w.lead(p, "refresh", func(ctx context.Context) error {
		_, err := p.writer.Refresh(ctx)
		return err
	})
}

func (w *world) look(p *process) {
	w.lead(p, "check", func(ctx context.Context) error {
		complete, err := p.writer.Check(ctx)
		if err == nil && !complete && w.harmed == 0 && p == w.leader {
			w.fatalf("%s says that the log was purged", p.name)
		}
		return err
	})
}

func (w *world) follow(p *process) {
	if p.follower == nil {
		p.writer = nil
		p.follower = statelog.NewFollower(p.log, p.copy, statelog.Claim{Cluster: "c"})
	}
	if w.IntN(10) == 0 {
		p.copy.Fail = errDisk
	}
	err := p.follower.Read(w.Context())
	p.copy.Fail = nil
	w.step(p, "follow", err)
	if errors.Is(err, statelog.ErrIncomplete) && w.harmed == 0 {
		w.fatalf("%s says that the log is incomplete", p.name)
	}
	w.check(p.name, p.copy, false)
	if err == nil && p.copy.Point().Partial && w.harmed == 0 {
		w.fatalf("%s has read everything, and is not complete", p.name)
	}
}

// positions returns the positions of all records.
func (w *world) positions() (positions []int64) {
	_, _ = w.broker.Open().Read(w.Context(), 0, func(position int64, _ []byte) error {
		positions = append(positions, position)
		return nil
	})
	return positions
}

// harm removes records from the log, but not only the last commit, because no process can detect that.
func (w *world) harm() {
	positions := w.positions()
	if w.leader != nil {
		last := w.leader.copy.Point().Position
		positions = slices.DeleteFunc(positions, func(p int64) bool { return p >= last })
	}
	if len(positions) == 0 {
		return
	}
	for _, p := range w.processes {
		w.harmed = max(w.harmed, p.copy.Point().Number+1) // a commit may be there that no copy has
	}
	at := positions[w.IntN(len(positions))]
	what := "purge"
	switch w.IntN(4) {
	case 0:
		w.broker.Remove(func(int64) bool { return true })
	case 1:
		w.broker.Remove(func(position int64) bool { return position <= at })
	case 2:
		what = "removed record"
		w.broker.Remove(func(position int64) bool { return position == at })
	default:
		what = "new log"
		w.broker.Recreate()
	}
	w.steps[what]++
	w.trace = append(w.trace, fmt.Sprint(what, " at ", at))
}

func (w *world) run(steps int, harm bool) {
	for range steps {
		time.Sleep(time.Second)
		p := w.processes[w.IntN(len(w.processes))]
		leads := p.writer != nil && p.follower == nil
		switch n := w.IntN(100); {
		case n < 3:
			w.start(p, w.IntN(2) == 0)
		case n < 8:
			w.claim(p)
		case n < 10 && harm:
			w.harm()
		case n < 12:
			w.broker.Arrive()
		case leads && n < 50:
			w.append(p)
		case leads && n < 95:
			w.refresh(p)
		case leads:
			w.look(p)
		case n < 60:
			w.follow(p)
		}
		if w.IntN(5) == 0 { // a process without a copy
			reader := &process{name: "reader", log: w.broker.Open(), copy: &logtest.Copy{}}
			w.follow(reader)
		}
	}
}

// After any sequence of steps, a copy has the content of the commit at its point. A new leader has every commit that
// was acknowledged, or reports that commits are missing.
func TestModel(t *testing.T) {
	steps := map[string]int{}
	for seed := range uint64(scale.Of(100, 20_000)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 1)))
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
				for step, n := range w.steps {
					steps[step] += n
				}
			}()
			w.run(150, seed%2 == 1)
		})
		if t.Failed() {
			return
		}
	}
	t.Log(steps)
}

package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

const (
	cluster  = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	patience = 200 * time.Millisecond // of the processes in the tests
)

// process is a Copy with a log that can fail.
type process struct {
	*Copy

	t   *testing.T
	log *faultyLog
	dir string
}

// faultyLog is a log whose methods can fail or hang.
type faultyLog struct {
	statelog.Log

	down   atomic.Bool                           // methods fail
	hangs  atomic.Bool                           // methods wait for their context
	before atomic.Pointer[func(appended []byte)] // called before each Append
}

var errDown = errors.New("the broker is down")

func (l *faultyLog) fail(ctx context.Context) error {
	if l.hangs.Load() {
		<-ctx.Done()
	}
	if l.down.Load() {
		return errDown
	}
	return ctx.Err()
}

func (l *faultyLog) Fence(ctx context.Context) (int64, error) {
	if err := l.fail(ctx); err != nil {
		return 0, err
	}
	return l.Log.Fence(ctx)
}

func (l *faultyLog) Append(ctx context.Context, after int64, record []byte) (int64, error) {
	if call := l.before.Load(); call != nil {
		(*call)(record)
	}
	if err := l.fail(ctx); err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, after, record)
}

func (l *faultyLog) Read(ctx context.Context, from int64, each func(int64, []byte) error) (int64, error) {
	if err := l.fail(ctx); err != nil {
		return from, err
	}
	return l.Log.Read(ctx, from, each)
}

// start opens a directory, or a new one if dir is empty, as a new process that uses the log.
func start(t *testing.T, log statelog.Log, dir string, edit ...func(*Options)) *process {
	t.Helper()
	p := &process{t: t, log: &faultyLog{Log: log}, dir: dir}
	if dir == "" {
		p.dir = t.TempDir()
	}
	o := Options{
		Log: p.log, Claim: statelog.Claim{Cluster: cluster, Started: time.Now()},
		timing: timing{patience, 2 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond},
	}
	o.Checkpoint = checkpoint.Options{
		Path: p.dir, NoSync: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, edit := range edit {
		edit(&o)
	}
	var err error
	if p.Copy, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func (p *process) close() {
	if err := p.Close(); err != nil {
		p.t.Error(err)
	}
}

// lead makes a process the leader, and writes everything to the log.
func (p *process) lead() *process {
	p.t.Helper()
	if err := p.Lead(p.t.Context(), false); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Store().BeginCluster(cluster); err != nil {
		p.t.Fatal(err)
	}
	for more := true; more; {
		var err error
		if more, err = p.step(p.t.Context(), false); errors.Is(err, errSilent) { // the machine is slow
			more = true
		} else if err != nil {
			p.t.Fatal(err)
		}
	}
	return p
}

// run calls Follow or Maintain, until stop is called or the test ends. stop returns what the method has returned.
func (p *process) run(method func(context.Context) error) (stop func() error, ended <-chan error) {
	ctx, cancel := context.WithCancel(p.t.Context())
	result, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		result <- method(ctx)
	}()
	wait := func() { cancel(); <-done }
	p.t.Cleanup(wait)
	return func() error { wait(); return <-result }, result
}

// result waits for what a method returns.
func result(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("the method does not return")
		return nil
	}
}

// stopped checks that a method returned nil when its context ended.
func stopped(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func newObject(t *testing.T, name string, version int, data string) *object.Object {
	t.Helper()
	o, err := object.New(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"n",`+
		`"uid":"u-%s","resourceVersion":"%d"},"data":{"d":%q}}`, name, name, version, data))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// put writes an object, the watermark and a position.
func (p *process) put(name string, version int) error {
	return p.putLarge(name, version, "")
}

func (p *process) putLarge(name string, version int, data string) error {
	p.t.Helper()
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	source := ledger.Source{Name: "configmaps", Resource: resource}
	u := ledger.Update{
		State:   ledger.State{Source: source, ResourceVersion: fmt.Sprint(version), Sinks: map[string]string{"s": "1"}},
		Upserts: []*object.Object{newObject(p.t, name, version, data)},
	}
	positions := map[string]sinks.Positions{"s": {"0": {Next: int64(version)}}}
	return p.Store().Commit([]ledger.Update{u}, map[string]string{"s": "filter"}, positions)
}

func (p *process) mustPut(name string, version int) {
	p.t.Helper()
	if err := p.put(name, version); err != nil {
		p.t.Fatal(err)
	}
}

// spill writes events of 200 KB.
func (p *process) spill(from, to uint64) {
	p.t.Helper()
	events, err := p.Store().Events("s")
	if err != nil {
		p.t.Fatal(err)
	}
	for n := from; n <= to; n++ {
		batch := events.NewBatch()
		_, err := batch.Add(n, "configmaps", fmt.Sprint(n), math.MaxInt64, func(dst []byte) ([]byte, error) {
			return append(dst, noise(150_000)...), nil
		})
		if err == nil {
			err = events.Append(batch, nil)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// next returns the position that put has written last.
func (p *process) next() int { return int(p.Store().Positions("s")["0"].Next) }

// content is what a checkpoint contains.
type content struct {
	Cluster, Installation string
	Destination           string
	Paused                time.Time
	Positions             sinks.Positions
	States                []ledger.State
	Rows                  map[string]string
	Waiting               int // number of spilled events that can be read
}

func (p *process) content() content {
	p.t.Helper()
	s := p.Store()
	c := content{
		Cluster: s.ClusterUID(), Installation: s.Installation(), Destination: s.Destination("s"),
		Paused: s.PausedSince("s"), Positions: s.Positions("s"), Rows: map[string]string{},
	}
	events, err := s.Events("s")
	if err != nil {
		p.t.Fatal(err)
	}
	for n := events.Acked() + 1; n <= events.Last(); n++ {
		if r, err := events.Read(n); err != nil || r.Err != nil {
			p.t.Errorf("event %d: %v, %v", n, err, r.Err)
		}
		c.Waiting++
	}
	if c.States, err = s.States(); err != nil {
		p.t.Fatal(err)
	}
	for _, state := range c.States {
		_, rows, err := s.Load(state.Source.Name)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, o := range rows {
			raw, err := s.Fetch(state.Source.Name, o.Key(), o.Identity)
			if err != nil {
				p.t.Fatal(err)
			}
			c.Rows[state.Source.Name+" "+o.Key()] = string(raw)
		}
	}
	return c
}

// expect checks what a checkpoint contains.
func (p *process) expect(want content) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.content()); diff != "" {
		p.t.Errorf("(-want +got) %s", diff)
	}
}

// newFile creates a checkpoint with objects that has never had a log.
func newFile(t *testing.T, dir string, objects int) content {
	t.Helper()
	file, err := checkpoint.Open(checkpoint.Options{Path: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Copy: &Copy{store: file}, t: t}
	if err := file.BeginCluster(cluster); err != nil {
		t.Fatal(err)
	}
	for n := range objects {
		p.mustPut(fmt.Sprint("o", n), n+1)
	}
	c := p.content()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// caughtUp waits until a process that follows has the last commit of the leader.
func (p *process) caughtUp(leader *process) {
	p.t.Helper()
	eventually(p.t, "the copy has the last commit", func() bool {
		got, want := p.Store().Copy().Point(), leader.Store().Copy().Point()
		return got.Number == want.Number && got.Chain == want.Chain && p.Behind() >= 0
	})
}

// expectLog checks what a process without a file reads from the log.
func expectLog(t *testing.T, log statelog.Log, want content) {
	t.Helper()
	p := start(t, log, "")
	stop, _ := p.run(p.Follow)
	eventually(t, "a new copy is complete", func() bool { return p.Behind() >= 0 })
	stopped(t, stop)
	p.expect(want)
}

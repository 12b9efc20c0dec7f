package engine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// tracked is an engine with one sink, a checkpoint, and one informer that no API server feeds.
type tracked struct {
	t        *testing.T
	engine   *Engine
	pipeline *pipeline
	informer *informer.Informer
	store    *checkpoint.Store
	at       string // the position from which it continues
}

// startSelecting starts a process whose sink selects namespaces by the label pick. existing are the namespaces that it
// finds. The process lists again.
func startSelecting(t *testing.T, dir string, existing filter.Namespaces) *tracked {
	t.Helper()
	return startTracked(t, dir, true, existing, filter.Rule{NamespaceSelector: "pick"})
}

// startTracked starts a process with the state of an earlier one.
func startTracked(t *testing.T, dir string, relist bool, existing filter.Namespaces, rules ...filter.Rule) *tracked {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := checkpoint.Open(checkpoint.Options{Path: dir, ClusterName: "c", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	sink := Sink{
		Name: "test", Encoder: &event.Encoder{Cluster: "c", Payload: event.PayloadChange},
		Buffer: delivery.Buffer{Events: 10000, Bytes: 1 << 24, Overflow: delivery.Block},
		Rules:  rules, Destination: stdout.New(io.Discard),
	}
	e := &Engine{metrics: metrics.New("", ""), options: Options{
		State: t.TempDir(), Logger: log, Store: store, Sinks: []Sink{sink},
	}}
	e.reading, e.stopReading = context.WithCancel(t.Context())
	e.tracker = e.newTracker()
	s := &tracked{t: t, engine: e, store: store}
	if s.pipeline, err = e.newPipeline(sink, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.pipeline.open(); err != nil {
		t.Fatal(err)
	}
	e.pipelines = []*pipeline{s.pipeline}
	s.pipeline.filter = s.pipeline.filter.WithNamespaces(existing, func(string) bool { return true })
	text := filterText(s.pipeline.filter.Rules())
	e.tracker.SetFilter("test", text)
	if err := store.BeginCluster("u"); err != nil { // as Tracker.Identify does
		t.Fatal(err)
	}
	if err := store.Commit(nil, map[string]string{"test": text}, nil); err != nil {
		t.Fatal(err)
	}
	source := informer.Source{Name: "pods", Resource: pods}
	memory := e.tracker.Resume(source)
	s.at, relist = memory.At, relist && memory.At != ""
	s.informer = informer.New(informer.Config{
		Source: source, Record: e.tracker.Record(source), Known: memory.Known, ResumeAt: memory.At, Relist: relist,
	})
	e.attach(s.informer)
	return s
}

// kill ends the process without a commit.
func (s *tracked) kill() {
	s.pipeline.Queue.Close()
	if err := s.store.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// relabel changes the labels of namespaces.
func (s *tracked) relabel(existing filter.Namespaces) {
	for _, l := range s.pipeline.selectNamespaces(existing) {
		l.followFilter(s.t.Context())
	}
}

// expect compares what was sent, and settles it.
func (s *tracked) expect(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, taken(s.t, s.pipeline)); diff != "" {
		s.t.Errorf("(-want +got):\n%s", diff)
	}
	s.pipeline.Queue.Ack(s.pipeline.Queue.Stats().Taken)
	if err := s.engine.tracker.Commit(); err != nil {
		s.t.Error(err)
	}
}

func (s *tracked) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// in returns a pod in a namespace.
func in(t *testing.T, namespace string, rv int) *object.Object {
	t.Helper()
	o, err := object.New(fmt.Appendf(nil,
		`{"metadata":{"name":"web","namespace":%q,"uid":%q,"resourceVersion":"%d"}}`, namespace, namespace, rv))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var picked = map[string]string{"pick": ""}

// The labels of namespaces change while the process runs, and while it is down: their objects enter and leave.
func TestNamespacesChange(t *testing.T) {
	dir := t.TempDir()
	s := startSelecting(t, dir, filter.Namespaces{"a": picked, "b": {}})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2), in(t, "c", 3)}, "3"))
	s.expect("added a.1 initial", "synced synced.c.pods.3")
	change := func(o *object.Object) {
		t.Helper()
		s.must(s.informer.Store().Update(o))
		s.informer.Store().UpdateResourceVersion(o.ResourceVersion)
	}

	s.relabel(filter.Namespaces{"a": {}, "b": picked, "c": {}})
	name := filterChange(t, s)
	s.expect("deleted a.1.left.filter."+name+" left at 1", "added b.2.filter."+name)
	change(in(t, "a", 4))
	change(in(t, "b", 5))
	s.expect("updated b.5")
	s.relabel(filter.Namespaces{"a": {}, "c": {}}) // a namespace that is deleted stays
	s.must(s.informer.Store().Delete(in(t, "b", 6)))
	s.informer.Store().UpdateResourceVersion("6")
	s.expect("deleted b.deleted")
	s.relabel(filter.Namespaces{"a": {}, "c": picked})
	s.expect("added c.3.filter." + filterChange(t, s))
	if selected := s.pipeline.filter.Rules()[0].Selected; !cmp.Equal(selected, []string{"c"}) {
		t.Errorf("%v are selected, without known objects in b", selected)
	}
	s.kill()

	s = startSelecting(t, dir, filter.Namespaces{"a": picked, "c": {}})
	name = s.engine.tracker.Known("pods", "test").Change
	s.must(s.informer.Store().Replace([]any{in(t, "a", 4), in(t, "c", 7)}, "7"))
	s.expect(
		"gap gap.c.pods.relist.6.7", "deleted c.7.left.filter."+name+" left at 7",
		"added a.4.filter."+name+" initial", "synced synced.c.pods.7",
	)
	s.kill()
}

// filterChange returns the name of the last change of the filter.
func filterChange(t *testing.T, s *tracked) string {
	t.Helper()
	states, err := s.store.States()
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	return states[0].Refilters["test"].Change
}

// The process is killed after it has stored that the filter changes, or after it has sent a part of the difference: the
// next process sends the difference, with the same ids.
func TestKilledWhileNamespacesChange(t *testing.T) {
	dir := t.TempDir()
	s := startSelecting(t, dir, filter.Namespaces{"a": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	s.expect("added a.1 initial", "synced synced.c.pods.3")
	s.relabel(filter.Namespaces{"a": {}, "b": picked})
	name := filterChange(t, s)
	want := []string{"deleted a.1.left.filter." + name + " left at 1", "added b.2.filter." + name}
	if diff := cmp.Diff(want, taken(t, s.pipeline)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := s.engine.tracker.Commit(); err != nil { // nothing of it is settled
		t.Error(err)
	}
	s.kill()
	for n, existing := range []filter.Namespaces{{"a": {}, "b": picked}, {"a": picked, "b": {}}} {
		s = startSelecting(t, dir, existing) // the second one finds the labels changed again
		known := s.engine.tracker.Known("pods", "test")
		if known.Floor != "3" || len(known.Filters) != 1+n || (known.Change == name) != (n == 0) {
			t.Errorf("the next process knows %+v", known)
		}
		s.kill()
	}
}

// resume starts a process that continues the watch.
func resume(t *testing.T, dir string, existing filter.Namespaces) *tracked {
	t.Helper()
	s := startTracked(t, dir, false, existing, filter.Rule{NamespaceSelector: "pick"})
	s.must(s.informer.Store().Replace(nil, s.at))
	s.informer.Store().UpdateResourceVersion("4") // a bookmark
	return s
}

// A process has sent a change after the last commit. The next one finds another filter, sends the difference, and is
// killed before the watch brings that change. The one after that still sends the leave, and no difference. When the watch
// has brought everything, the earlier filter is forgotten.
func TestKilledAfterTheDifference(t *testing.T) {
	dir := t.TempDir()
	s := startSelecting(t, dir, filter.Namespaces{"a": picked, "b": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1)}, "3"))
	s.expect("added a.1 initial", "synced synced.c.pods.3")
	s.change(in(t, "b", 5), false)
	expectTaken(t, s.pipeline, "added b.5")
	s.kill()

	s = resume(t, dir, filter.Namespaces{"a": {}, "b": {}})
	name := filterChange(t, s)
	s.expect("deleted a.1.left.filter."+name+" left at 1", "synced synced.c.pods.4")
	s.kill()

	leave := "deleted b.5.left.filter." + name + " left at 5 if found"
	s = resume(t, dir, filter.Namespaces{"a": {}, "b": {}})
	s.change(in(t, "b", 5), false)
	expectTaken(t, s.pipeline, leave)
	s.pipeline.attached["pods"].OnCaughtUp() // the leave is not settled
	s.must(s.engine.tracker.Commit())
	s.kill()

	s = resume(t, dir, filter.Namespaces{"a": {}, "b": {}})
	s.change(in(t, "b", 5), false)
	s.expect(leave)
	s.pipeline.attached["pods"].OnCaughtUp()
	s.must(s.engine.tracker.Commit())
	s.kill()

	s = resume(t, dir, filter.Namespaces{"a": {}, "b": {}})
	if known := s.engine.tracker.Known("pods", "test"); len(known.Filters) > 0 {
		t.Errorf("the sink still knows %+v", known)
	}
	s.change(in(t, "b", 7), false)
	s.expect()
	s.kill()
}

// When a list has shown everything that the process before may have sent, its filter is forgotten.
func TestAFormerFilterIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := startSelecting(t, dir, filter.Namespaces{"a": picked})
		s.must(s.informer.Store().Replace([]any{in(t, "a", 1)}, "3"))
		s.expect("added a.1 initial", "synced synced.c.pods.3")
		s.kill()
		s = startSelecting(t, dir, filter.Namespaces{"a": {}})
		name := filterChange(t, s)
		s.must(s.informer.Store().Replace([]any{in(t, "a", 1)}, "4"))
		s.expect("gap gap.c.pods.relist.3.4", "deleted a.1.left.filter."+name+" left at 1", "synced synced.c.pods.4")
		if states, _ := s.store.States(); len(states[0].Refilters) > 0 {
			t.Errorf("%+v", states)
		}
		s.kill()
	})
}

// A source that is listed for the first time after the labels have changed is sent by the new filter alone, and one that
// is behind sends the difference later.
func TestNamespacesChangeBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, testNamespacesChangeBeforeTheFirstList)
}

func testNamespacesChangeBeforeTheFirstList(t *testing.T) {
	s := startSelecting(t, t.TempDir(), filter.Namespaces{"a": picked})
	s.relabel(filter.Namespaces{"a": {}, "b": picked})
	if !s.engine.tracker.Ledger("pods").GivingList() {
		t.Error("the change ends the initial list before it is sent")
	}
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	s.expect("added b.2 initial", "synced synced.c.pods.3")
	if state, _ := s.store.States(); len(state[0].Refilters) > 0 {
		t.Errorf("the list does not end the change: %+v", state)
	}
	affected := s.pipeline.selectNamespaces(filter.Namespaces{"a": {}, "b": {}})
	l := affected[0]
	l.floor = "9" // as after a restart
	l.position = "8"
	done := make(chan struct{})
	go func() { defer close(done); l.followFilter(t.Context()) }()
	time.Sleep(time.Minute)
	select {
	case <-done:
		t.Error("the filter changes before the listener has caught up")
	default:
	}
	s.informer.Store().UpdateResourceVersion("9")
	<-done
	s.expect("deleted b.2.left.filter." + filterChange(t, s) + " left at 2")
	s.kill()
}

// The labels change again while a process still has to send the difference of an earlier change. When it has sent that
// one, the next process still knows that the other one is missing.
func TestNamespacesChangeAgainBeforeTheDifference(t *testing.T) {
	dir := t.TempDir()
	s := startSelecting(t, dir, filter.Namespaces{"a": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "3"))
	s.expect("added a.1 initial", "synced synced.c.pods.3")
	s.kill()

	s = startSelecting(t, dir, filter.Namespaces{"a": picked, "b": picked})
	first := s.engine.tracker.Known("pods", "test").Change
	s.pipeline.selectNamespaces(filter.Namespaces{"a": {}, "b": picked})
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "4"))
	s.expect("gap gap.c.pods.relist.3.4", "added b.2.filter."+first+" initial", "synced synced.c.pods.4")
	s.kill()

	s = startSelecting(t, dir, filter.Namespaces{"a": {}, "b": picked})
	name := s.engine.tracker.Known("pods", "test").Change
	s.must(s.informer.Store().Replace([]any{in(t, "a", 1), in(t, "b", 2)}, "5"))
	s.expect("gap gap.c.pods.relist.3.5", "deleted a.1.left.filter."+name+" left at 1",
		"added b.2.filter."+name+" initial", "synced synced.c.pods.5")
	s.kill()
}

// A process that continues a watch has sent objects before, so a change of labels before that must wait.
func TestNamespacesChangeBeforeTheWatchContinues(t *testing.T) {
	dir := t.TempDir()
	for n, want := range []bool{true, false} { // the first process begins with a list
		s := startTracked(t, dir, false, filter.Namespaces{"a": picked}, filter.Rule{NamespaceSelector: "pick"})
		if may := (filterTurn{s.pipeline.attached["pods"]}).MayRestate(); may != want {
			t.Errorf("process %d can change its filter: %t", n, may)
		}
		if want {
			s.must(s.informer.Store().Replace([]any{in(t, "a", 1)}, "3"))
			s.expect("added a.1 initial", "synced synced.c.pods.3")
		}
		s.kill()
	}
}

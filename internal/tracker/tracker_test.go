package tracker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

var quiet = slog.New(slog.DiscardHandler)

const testCluster = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

var pods = informer.Source{Name: "pods", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}

// pod returns an object with this name and resourceVersion.
func pod(t testing.TB, name string, version int) *object.Object {
	t.Helper()
	o, err := object.New(
		fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q,"uid":"u-%s","resourceVersion":"%d"}}`, name, name, version),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// start starts a process with a state directory, and returns a tracker that has identified its cluster.
func start(t testing.TB, folder string, sinks ...Sink) *Tracker {
	t.Helper()
	return startWatching(t, folder, "", sinks...)
}

// startWatching is like start, but with a watch configuration.
func startWatching(t testing.TB, folder, watch string, sinks ...Sink) *Tracker {
	t.Helper()
	e := New(
		Options{
			Store:   openStore(t, folder),
			Watch:   watch,
			Sinks:   sinks,
			Queues:  &disk{},
			Reading: t.Context(),
			Logger:  quiet,
		},
	)
	if err := e.load(testCluster); err != nil {
		t.Fatal(err)
	}
	return e
}

func openStore(t testing.TB, folder string) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.Open(checkpoint.Options{Path: folder, ClusterName: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// disk represents what the queues of all sinks have written to disk.
type disk struct {
	spilled map[string]map[string]string // positions by source (followed by its history) and sink
	persist func()
}

func (d *disk) Persist() { d.persist() }
func (d *disk) Spilled(source, history string) map[string]string {
	return d.spilled[strings.TrimSpace(source+" "+history)]
}

// stop ends a process as SIGTERM does, with a last commit.
func stop(t *testing.T, e *Tracker) {
	t.Helper()
	_ = e.Commit()
	kill(t, e)
}

// kill ends a process without a commit.
func kill(t *testing.T, e *Tracker) {
	t.Helper()
	if err := errors.Join(e.Finish(), e.store.(io.Closer).Close()); err != nil {
		t.Fatal(err)
	}
}

// begin records the first list of a source, which each sink settles.
func begin(t testing.TB, e *Tracker, source informer.Source, version string, objects ...*object.Object) {
	t.Helper()
	if memory := e.Resume(source); len(memory.Known) != 0 || memory.At != "" {
		t.Fatalf("a new source resumes at %q with %d rows", memory.At, len(memory.Known))
	}
	if !e.Record(source).FirstList(objects, version) {
		t.Fatal("the first list was not stored")
	}
	caughtUp(t, e, source, version)
}

// caughtUp says that every sink was given the whole source, and that it is at a position.
func caughtUp(t testing.TB, e *Tracker, source informer.Source, version string) {
	for _, sink := range e.sinks {
		e.Ledger(source.Name).FinishList(sink)
	}
	e.Record(source).Reached(version)
}

// send sends a message to a sink.
func send(e *Tracker, source informer.Source, sink string) *event.Message {
	return &event.Message{Origin: event.Origin{Source: source.Name, Seq: e.Ledger(source.Name).Track(sink)}}
}

func namesOf(objects []*object.Object) (names []string) {
	for _, o := range objects {
		names = append(names, o.Name+"@"+o.ResourceVersion)
	}
	return names
}

func TestResume(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "fast"}, Sink{Name: "slow"})
	begin(t, e, pods, "10", pod(t, "a", 3), pod(t, "b", 4))
	r := e.Record(pods)

	r.Updated(pod(t, "a", 11))
	first, waiting := send(e, pods, "fast"), send(e, pods, "slow")
	r.Reached("11")
	e.Settle("fast", first)
	r.Deleted(pod(t, "b", 12))
	e.Settle("fast", send(e, pods, "fast"))
	r.Reached("12")
	_ = e.Commit()
	kill(t, e)

	e = start(t, folder, Sink{Name: "fast"}, Sink{Name: "slow"}, Sink{Name: "new"})
	if got := e.Remembered(); len(got) != 1 || got[0] != pods {
		t.Errorf("remembered: %+v", got)
	}
	e.queues = &disk{spilled: map[string]map[string]string{"pods": {"slow": "11", "new": "11"}}}
	memory := e.Resume(pods)
	if diff := cmp.Diff([]string{"a@3", "b@4"}, namesOf(memory.Known)); diff != "" || memory.At != "10" {
		t.Errorf("the rows are those of the slow sink: at %s, %s", memory.At, diff)
	}
	for sink, want := range map[string]string{"fast": "12", "slow": "11", "new": ""} { // what was spilled of slow counts
		if got := e.Known("pods", sink); got.Floor != want || len(got.Filters) > 0 {
			t.Errorf("%s knows %+v, want %q", sink, got, want)
		}
	}
	if len(e.Remembered()) != 0 {
		t.Error("a source that was resumed is still to be resumed")
	}
	e.Settle("slow", waiting) // of the process before: no number of this one
	if open := e.Ledger("pods").Open(); open != 0 {
		t.Errorf("%d are open", open)
	}
}

// The bytes of an object are found while the object waits, while it is written, and when it is in the store.
func TestBodies(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "s"})
	begin(t, e, pods, "10", pod(t, "a", 3))
	fetch := func(o *object.Object) {
		t.Helper()
		if raw, err := e.Record(pods).Fetch(o); err != nil || string(raw) != string(o.Raw) {
			t.Errorf("%s %v", raw, err)
		}
	}
	fetch(pod(t, "a", 3))
	e.Record(pods).Updated(pod(t, "a", 11))
	fetch(pod(t, "a", 3))
	fetch(pod(t, "a", 11))
	e.Record(pods).Reached("11")
	_ = e.Commit()
	fetch(pod(t, "a", 11))
}

// A source that is no longer watched is removed when its events are settled. It stays if it is watched again before
// that.
func TestForget(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	begin(t, e, pods, "10", pod(t, "a", 3))
	deletion := send(e, pods, "s")
	e.Forget("pods")
	_ = e.Commit()
	if e.Ledger("pods") == nil {
		t.Fatal("the source went before its deletions were settled")
	}
	if !e.keep("pods") {
		t.Error("the source is not back")
	}
	e.Settle("s", deletion)
	_ = e.Commit()
	if e.Ledger("pods") == nil {
		t.Fatal("a source that came back went")
	}
	e.Forget("pods")
	_ = e.Commit()
	if e.Ledger("pods") != nil || len(e.States()) != 0 {
		t.Error("the source is still there")
	}
	kill(t, e)
	e = start(t, folder, Sink{Name: "s"})
	if got := e.Remembered(); len(got) != 0 {
		t.Errorf("remembered: %+v", got)
	}
	e.Forget("never seen")
	_ = e.Commit()
}

// The resource is not served any more after etcd was restored, and is served again later. Its resourceVersions can then
// be lower than those that were sent before.
func TestForgetAfterARestoredEtcd(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	other := podsIn("other")
	begin(t, e, pods, "20", pod(t, "a", 19))
	begin(t, e, other, "20")
	e.Record(other).Gap("20", "10")
	e.Forget("pods")
	_ = e.Commit()
	begin(t, e, pods, "12", pod(t, "a", 11))
	for range 2 {
		if history := e.Ledger("pods").History(); history != "10" {
			t.Errorf("history %q", history)
		}
		kill(t, e)
		e = start(t, folder, Sink{Name: "s"})
		e.Resume(pods)
	}
}

// A source that is being removed is resumed only after the removal. Otherwise the store would remove what the resumed
// source has begun.
func TestResumeWhileASourceIsForgotten(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "a"})
	begin(t, e, pods, "10", pod(t, "a", 3))
	_ = e.Commit()
	e.Forget("pods")
	resumed := make(chan informer.Memory, 1)
	func() {
		e.forgetting.Lock() // as finishLeaving does while the store forgets the source
		defer e.forgetting.Unlock()
		go func() { resumed <- e.Resume(pods) }()
		select {
		case <-resumed:
			t.Fatal("resumed meanwhile")
		case <-time.After(20 * time.Millisecond):
		}
		if err := e.store.Forget("pods"); err != nil {
			t.Fatal(err)
		}
		delete(e.sources, "pods")
	}()
	if memory := <-resumed; memory.At != "" || len(memory.Known) > 0 {
		t.Errorf("it goes on with %+v", memory)
	}
	stop(t, e)
}

package tracker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// A first list that was staged while it was read is stored before any of it is handed on: a process that is killed
// right then resumes with it, and each sink may have been sent a part.
func TestFirstList(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	if memory := e.Resume(pods); memory.At != "" {
		t.Fatalf("a new source has %+v", memory)
	}
	r := e.Record(pods)
	stage := r.Stage()
	for _, o := range []*object.Object{pod(t, "a", 3), pod(t, "b", 4), pod(t, "gone", 5)} {
		if err := stage.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := stage.Remove(pod(t, "gone", 5)); err != nil {
		t.Fatal(err)
	}
	if !r.FirstList([]*object.Object{pod(t, "a", 3), pod(t, "b", 4)}, "10") {
		t.Fatal("the first list was not stored")
	}
	if r.Stage() != nil {
		t.Error("a second list is staged")
	}
	kill(t, e)

	e = start(t, folder, Sink{Name: "s"})
	memory := e.Resume(pods)
	if diff := cmp.Diff([]string{"a@3", "b@4"}, namesOf(memory.Known)); diff != "" || memory.At != "10" {
		t.Errorf("resumed at %q: %s", memory.At, diff)
	}
	if known := e.Known("pods", "s"); !known.Part {
		t.Errorf("the sink knows %+v", known)
	}
}

// A list that was not finished is ignored.
func TestFirstListThatWasNotFinished(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "s"})
	e.Resume(pods)
	stage := e.Record(pods).Stage()
	if err := errors.Join(stage.Put(pod(t, "a", 3)), stage.Remove(pod(t, "b", 3))); err != nil {
		t.Fatal(err)
	}
	stop(t, e)
	e = start(t, folder, Sink{Name: "s"})
	if memory := e.Resume(pods); memory.At != "" || len(memory.Known) > 0 || len(e.Remembered()) > 0 {
		t.Errorf("resumed with %+v", memory)
	}
}

// A list that fails is started again: the objects that it returned before may be deleted, and its late parts must be
// ignored.
func TestAListThatIsBegunAgain(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "s"})
	e.Resume(pods)
	first := e.Record(pods).Stage()
	if err := errors.Join(first.Put(pod(t, "a", 3)), first.Remove(pod(t, "b", 3)), first.Put(pod(t, "c", 3))); err != nil {
		t.Fatal(err)
	}
	second := e.Record(pods).Stage()
	if err := second.Put(pod(t, "d", 4)); err != nil {
		t.Fatal(err)
	}
	if err := first.Remove(pod(t, "a", 3)); !errors.Is(err, errSuperseded) {
		t.Errorf("the first list goes on: %v", err)
	}
	if !e.Record(pods).FirstList([]*object.Object{pod(t, "d", 4)}, "10") {
		t.Fatal("the first list was not stored")
	}
	if _, rows, err := e.store.Load("pods"); err != nil || cmp.Diff([]string{"d@4"}, namesOf(rows)) != "" {
		t.Errorf("%v, %v", namesOf(rows), err)
	}
}

// A list of any length is written in parts while it is read, and its memory is released.
func TestAListIsWrittenInParts(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "s"})
	e.Resume(pods)
	list := e.Record(pods).Stage().(*stage)
	objects := make([]*object.Object, 9)
	for n := range objects {
		o, err := object.New(
			fmt.Appendf(nil, `{"metadata":{"name":"o%d","resourceVersion":"1"},"data":%q}`, n, strings.Repeat("x", partBytes/3)),
		)
		if err != nil {
			t.Fatal(err)
		}
		objects[n] = o
		if err := list.Put(o); err != nil || list.bytes > 2*partBytes {
			t.Errorf("%d bytes wait, %v", list.bytes, err)
		}
	}
	if !e.Record(pods).FirstList(objects, "10") || list.part != nil {
		t.Error("the list was not stored, or is kept")
	}
	if _, rows, err := e.store.Load("pods"); err != nil || len(rows) != len(objects) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// fullStore is a store whose next commits fail.
type fullStore struct {
	Store
	failures int
}

func (s *fullStore) Commit(updates []ledger.Update, filters map[string]string, at map[string]sinks.Positions) error {
	if s.failures--; s.failures >= 0 {
		return syscall.ENOSPC
	}
	return s.Store.Commit(updates, filters, at)
}

// While a list cannot be written to disk, the bridge is not ready and retries, until reading ends.
func TestFirstListWaitsForTheDisk(t *testing.T) {
	for name, failures := range map[string]int{"until there is room": 2, "until reading ends": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, t.TempDir(), Sink{Name: "s"})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				e.reading, e.store = ctx, &fullStore{e.store, failures}
				e.Resume(pods)
				stored := make(chan bool, 1)
				began := time.Now()
				go func() { stored <- e.Record(pods).FirstList([]*object.Object{pod(t, "a", 3)}, "10") }()
				synctest.Wait()
				if e.NotReady() == nil || e.Ledger("pods").Begun() {
					t.Errorf("not ready: %v, begun: %t", e.NotReady(), e.Ledger("pods").Begun())
				}
				switch got, took := <-stored, time.Since(began); {
				case failures == 2 && (!got || took != 2*retryInterval || e.NotReady() != nil || !e.Ledger("pods").Begun()):
					t.Errorf("stored: %t after %s, not ready: %v", got, took, e.NotReady())
				case failures > 2 && (got || took != time.Minute || e.Ledger("pods").Begun()):
					t.Errorf("stored: %t after %s", got, took)
				}
			})
		})
	}
}

// That the scope of a source changes is on disk before any difference is sent. Otherwise, a process that has the former
// scope again would not know of the leaves that were sent.
func TestAChangedScopeWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		e := start(t, folder, Sink{Name: "s"})
		begin(t, e, pods, "10", pod(t, "a", 3))
		stop(t, e)
		e = start(t, folder, Sink{Name: "s"})
		store, changed := e.store, pods
		changed.Scope = "new"
		e.store = &fullStore{store, 2}
		e.Resume(changed)
		e.store = store
		kill(t, e)
		e = start(t, folder, Sink{Name: "s"})
		if e.Resume(pods); e.Known("pods", "s").Knows() {
			t.Error("the next process does not send an initial list")
		}
		kill(t, e)
	})
}

// Settled events are committed once a second, and once more at the end. EachSecond is called as often as it says.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, t.TempDir(), Sink{Name: "s"})
		begin(t, e, pods, "10", pod(t, "a", 3))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		seconds := 0
		e.second = func() { seconds++ }
		go func() { ended <- e.Run(ctx) }()
		settled := func() string {
			synctest.Wait()
			for _, s := range e.States() {
				return s.Sinks["s"]
			}
			return "nothing"
		}
		for _, version := range []string{"11", "12"} {
			before := settled()
			e.Record(pods).Reached(version)
			time.Sleep(commitInterval / 2)
			if got := settled(); version == "12" && got != before {
				t.Errorf("%s was committed too early: %s", version, got)
			}
			time.Sleep(commitInterval)
			if got := settled(); got != version {
				t.Errorf("%s is committed, want %s", got, version)
			}
			time.Sleep(commitInterval / 2)
		}
		e.Record(pods).Reached("13")
		cancel()
		if err := <-ended; err != nil || settled() != "13" {
			t.Errorf("in the end %s is committed, %v", settled(), err)
		}
		if seconds != 4 {
			t.Errorf("EachSecond was called %d times in 4 seconds", seconds)
		}
		kill(t, e)
	})
}

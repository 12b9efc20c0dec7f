package tracker

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// A position is stored as soon as neither the queue nor a source would bring again an event that was sent before it,
// and not earlier.
func TestPositions(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "fast"}, Sink{Name: "slow"})
	begin(t, e, pods, "10", pod(t, "a", 3))
	e.Resume(podsIn("idle")) // has no list yet
	stored := func(want sinks.Positions) {
		t.Helper()
		if err := e.Commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, e.store.Positions("fast")); diff != "" {
			t.Error(diff)
		}
	}
	change := func(version string) (fast, slow func()) {
		first, second := send(e, pods, "fast"), send(e, pods, "slow")
		e.Record(pods).Reached(version)
		return func() { e.Settle("fast", first) }, func() { e.Settle("slow", second) }
	}

	fast, slow := change("11")
	gone := false
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 7}}, func() bool { return gone })
	stored(nil)
	fast()
	stored(nil)
	gone = true
	later, _ := change("12")
	stored(sinks.Positions{"t/0": {Next: 7}}) // events of other sinks, and later ones, do not matter
	slow()
	later()

	// Only one bookmark waits, and one that changes nothing does not.
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 7}}, func() bool { return false })
	if !e.NeedsBookmark("fast") {
		t.Error("a position that is stored waits")
	}
	e.Bookmark("fast", sinks.Positions{"t/1": {Next: 3, Producer: 4}}, func() bool { return gone })
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 9}}, func() bool { return gone })
	if e.NeedsBookmark("fast") {
		t.Error("two bookmarks")
	}
	stored(sinks.Positions{"t/0": {Next: 7}, "t/1": {Next: 3, Producer: 4}})

	// A sink stores the position of a part before it writes there for the first time.
	resume := e.Resumes("fast")
	if err := resume.Store(sinks.Positions{"t/2": {Next: 5}}); err != nil {
		t.Fatal(err)
	}
	writer := resume.Writer
	kill(t, e)
	e = start(t, folder, Sink{Name: "fast"}, Sink{Name: "slow"})
	resume = e.Resumes("fast")
	if diff := cmp.Diff(sinks.Positions{"t/0": {Next: 7}, "t/1": {Next: 3, Producer: 4}, "t/2": {Next: 5}},
		resume.Positions); diff != "" || resume.Writer != writer {
		t.Errorf("writer %s, was %s; %s", resume.Writer, writer, diff)
	}
	kill(t, e)

	// A sink that is removed, and added again later, has no positions.
	kill(t, start(t, folder, Sink{Name: "slow"}))
	if got := start(t, folder, Sink{Name: "fast"}).Resumes("fast"); len(got.Positions) != 0 || got.Writer != writer {
		t.Errorf("%+v", got)
	}
}

// A sink that is being sent its initial list keeps its position until it was sent the whole list.
func TestPositionDuringTheInitialList(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "fast"})
	e.Resume(pods)
	if !e.Record(pods).FirstList(nil, "10") {
		t.Fatal("the first list was not stored")
	}
	e.Settle("fast", send(e, pods, "fast"))
	e.Record(pods).Reached("10")
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 7}}, func() bool { return true })
	if err := e.Commit(); err != nil || len(e.store.Positions("fast")) != 0 {
		t.Errorf("%v, %v", e.store.Positions("fast"), err)
	}
	e.Ledger("pods").FinishList("fast")
	if err := e.Commit(); err != nil || len(e.store.Positions("fast")) != 1 {
		t.Errorf("%v, %v", e.store.Positions("fast"), err)
	}
}

// What another sink is sent at the end of the list does not matter. No change and no bookmark of the watch follows, as in
// a cluster in which nothing happens.
func TestPositionAfterTheInitialList(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "fast"}, Sink{Name: "slow"})
	e.Resume(pods)
	if !e.Record(pods).FirstList(nil, "10") {
		t.Fatal("the first list was not stored")
	}
	e.Record(pods).Reached("10")
	for _, sink := range []string{"fast", "slow"} {
		e.Settle(sink, send(e, pods, sink))
		e.Ledger("pods").FinishList(sink)
	}
	for _, sink := range []string{"fast", "slow"} {
		e.Bookmark(sink, sinks.Positions{"t/0": {Next: 7}}, func() bool { return true })
	}
	if err := e.Commit(); err != nil || len(e.store.Positions("fast")) != 1 || len(e.store.Positions("slow")) != 1 {
		t.Errorf("%v, %v, %v", e.store.Positions("fast"), e.store.Positions("slow"), err)
	}
}

// Positions are stored together with the watermarks that permit them. If the store cannot be written, they are stored
// later.
func TestPositionsWaitForTheDisk(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "fast"})
	e.store = &fullStore{Store: e.store, failures: 1}
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 7}}, func() bool { return true })
	if err := e.Commit(); !errors.Is(err, syscall.ENOSPC) || len(e.store.Positions("fast")) != 0 {
		t.Errorf("%v, %v", e.store.Positions("fast"), err)
	}
	if err := e.Commit(); err != nil || len(e.store.Positions("fast")) != 1 {
		t.Errorf("%v, %v", e.store.Positions("fast"), err)
	}
}

// If two commits run at the same time, as when the process stops, no position is stored before the watermark that
// permits it.
func TestCommitsAtOnce(t *testing.T) {
	e := start(t, t.TempDir(), Sink{Name: "fast"})
	begin(t, e, pods, "10", pod(t, "a", 3))
	_ = e.Commit()
	store := &slowStore{Store: e.store, begun: make(chan struct{}, 2)}
	e.store = store
	e.Settle("fast", send(e, pods, "fast"))
	e.Record(pods).Reached("11")
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 7}}, func() bool { return true })
	var group sync.WaitGroup
	group.Go(func() { _ = e.Commit() })
	<-store.begun
	group.Go(func() { _ = e.Commit() })
	select {
	case <-store.begun:
		t.Error("the position is stored before the watermark")
	case <-time.After(20 * time.Millisecond):
	}
	group.Wait()
}

// slowStore is a store whose commits take some time, and which reports when they begin.
type slowStore struct {
	Store

	begun chan struct{}
}

func (s *slowStore) Commit(updates []ledger.Update, filters map[string]string, at map[string]sinks.Positions) error {
	s.begun <- struct{}{}
	if len(updates) > 0 {
		<-time.After(50 * time.Millisecond)
	}
	return s.Store.Commit(updates, filters, at)
}

// What a spill brought is behind the watermark in the store, which the next process begins with when the spill is empty.
func TestPositionBehindASpill(t *testing.T) {
	folder := t.TempDir()
	e := start(t, folder, Sink{Name: "fast"})
	begin(t, e, pods, "10")
	stop(t, e)

	e = start(t, folder, Sink{Name: "fast"})
	e.queues = &disk{spilled: map[string]map[string]string{"pods": {"fast": "15"}}}
	e.Resume(pods)
	e.Bookmark("fast", sinks.Positions{"t/0": {Next: 7}}, func() bool { return true })
	if err := e.Commit(); err != nil {
		t.Fatal(err)
	}
	if states := e.States(); len(states) != 1 || states[0].Sinks["fast"] != "15" || len(e.store.Positions("fast")) != 1 {
		t.Errorf("%+v, %v", states, e.store.Positions("fast"))
	}
}

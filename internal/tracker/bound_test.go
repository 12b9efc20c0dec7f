package tracker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// awaySink is a tracker with two sinks. The sink "away" has one open event of a source. The sink "live" settles all
// events of this source at once.
type awaySink struct {
	*Tracker
	t      *testing.T
	open   *event.Message
	most   int64
	at     int
	quoted string
}

func newAwaySink(t *testing.T, lossy bool, persist func(*awaySink)) *awaySink {
	a := newStoppedAwaySink(t, lossy, persist)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

// newStoppedAwaySink is newAwaySink with a Tracker that does not run.
func newStoppedAwaySink(t *testing.T, lossy bool, persist func(*awaySink)) *awaySink {
	a := &awaySink{t: t, at: 10, quoted: strconv.Quote(strings.Repeat("x", 20_000))}
	e := New(
		Options{
			Store:   openStore(t, t.TempDir()),
			Sinks:   []Sink{{Name: "live"}, {Name: "away", Lossy: lossy}},
			Queues:  &disk{persist: func() { persist(a) }},
			Reading: t.Context(),
			Logger:  quiet,
		},
	)
	a.Tracker = e
	if err := e.load(testCluster); err != nil {
		t.Fatal(err)
	}
	begin(t, e, pods, "10")
	a.open = send(e, pods, "away")
	return a
}

func (a *awaySink) state(name string) *object.Object {
	o, err := object.New(
		fmt.Appendf(nil, `{"metadata":{"name":%q,"resourceVersion":"%d"},"data":{"text":%s}}`, name, a.at, a.quoted),
	)
	if err != nil {
		a.t.Fatal(err)
	}
	return o
}

// change records a change of an object that is sent only to live.
func (a *awaySink) change(ctx context.Context, name string, deletes bool) {
	a.reading = ctx
	r := a.Record(pods)
	a.at++
	if deletes {
		r.Deleted(a.state(name))
	} else {
		r.Added(a.state(name))
	}
	a.Settle("live", send(a.Tracker, pods, "live"))
	r.Reached(fmt.Sprint(a.at))
	a.most = max(a.most, a.held.Load())
}

// A sink with one open event costs no more memory than the bound, however many changes its filter suppresses: the event
// is written to disk, which settles it.
func TestANarrowFilterHoldsLittle(t *testing.T) {
	persisted := make(chan struct{}, 1)
	a := newAwaySink(t, false, func(a *awaySink) {
		a.Settle("away", a.open)
		select {
		case persisted <- struct{}{}:
		default:
		}
	})
	for n := range 5_000 {
		a.change(t.Context(), fmt.Sprint("p", n), false)
		a.change(t.Context(), fmt.Sprint("p", n), true)
	}
	select {
	case <-persisted:
	default:
		t.Error("the queues were not asked to write to disk")
	}
	if a.most > maxHeld+50_000 {
		t.Errorf("%d bytes were held", a.most)
	}
	err := a.Commit()
	if open, _ := a.Unsettled("away"); err != nil || a.held.Load() != 0 || open > 0 {
		t.Errorf("in the end %d bytes are held, %d events are open, %v", a.held.Load(), open, err)
	}
}

// A commit uses several times the memory of its rows. Therefore it does not wait for a second while many objects change.
func TestACommitDoesNotWaitForManyRows(t *testing.T) {
	a := newStoppedAwaySink(t, false, func(*awaySink) {})
	for before := int64(0); before < crowdedFrom-commitAfter; before = a.held.Load() {
		n := 0
		for ; len(a.crowded) == 0; n++ {
			a.change(t.Context(), fmt.Sprint("p", n), false)
		}
		if grown := a.held.Load() - before; grown < commitAfter || grown > commitAfter+50_000 {
			t.Fatalf("a commit was requested after %d bytes", grown)
		}
		<-a.crowded
		if err := a.Commit(); err != nil { // settles nothing, because an event of the other sink is open
			t.Fatal(err)
		}
	}
}

// While a commit takes long, the source is read only until the ledgers have grown by runAhead.
func TestTheSourceWaitsForACommit(t *testing.T) {
	a := newStoppedAwaySink(t, false, func(*awaySink) {})
	for n := 0; a.held.Load() <= runAhead-50_000; n++ {
		a.change(t.Context(), fmt.Sprint("p", n), false)
	}
	waits := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for n := range 5 {
			a.change(ctx, fmt.Sprint("q", n), false)
		}
		return ctx.Err() != nil
	}
	if !waits() {
		t.Errorf("the source does not wait, and %d bytes are held", a.held.Load())
	}
	if err := a.Commit(); err != nil {
		t.Fatal(err)
	}
	if waits() {
		t.Error("the source waits after the commit")
	}
}

// Where the queue can't write to disk, a sink that may lose events does not hold up the source, and holds what exists.
func TestALossySinkDoesNotHoldUpTheSource(t *testing.T) {
	a := newAwaySink(t, true, func(*awaySink) {})
	for n := range 5_000 {
		a.change(t.Context(), fmt.Sprint("p", n), false)
		a.change(t.Context(), fmt.Sprint("p", n), true)
	}
	if a.most > 2*maxHeld { // what comes while it is squeezed is not held up
		t.Errorf("%d bytes were held", a.most)
	}
}

// If the queue cannot write to disk and the sink must not lose events, the source waits.
func TestTheSourceWaitsWhereNothingElseHelps(t *testing.T) {
	a := newAwaySink(t, false, func(*awaySink) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for n := 0; a.held.Load() <= maxHeld; n++ {
		a.change(ctx, fmt.Sprint("p", n), false)
	}
	if ctx.Err() == nil {
		t.Error("the source did not wait")
	}
	a.Settle("away", a.open)
	a.change(t.Context(), "last", false)
	if held := a.held.Load(); held > maxHeld {
		t.Errorf("it waited until %d bytes were held", held)
	}
}

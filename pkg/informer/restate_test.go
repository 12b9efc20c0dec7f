package informer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/watch"
)

// retold is a journal that is restated to, up to a limit at first.
type retold struct {
	*journal
	room int
}

func (r *retold) MayRestate() bool { return r.room > 0 }

func (r *retold) OnRestate(o *object.Object) {
	r.room--
	r.note("restate %s", label(o))
}

// restate is Restate with a word at the end.
func (r *retold) restate(ctx context.Context, i *Informer) error {
	if err := i.Restate(ctx, r); err != nil {
		return err
	}
	return i.Turn(ctx, r, func(rv string) { r.note("restated, at %s", rv) })
}

// Known objects are restated with their current state. Changes are delivered in between, and no state follows a newer
// one.
func TestRestate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
		i.AddEventHandler(j)
		s := (*store)(i)
		r := &retold{j, 2}
		if err := r.restate(t.Context(), i); !errors.Is(err, ErrNotSynced) {
			t.Errorf("before the first list: %v", err)
		}
		var all []any
		for n, name := range []string{"a", "b", "changed", "deleted", "again", "f"} {
			all = append(all, state(t, "ns", name, "u-"+name, n+1))
		}
		do(t, s.Replace(all, "10"))
		j.take()

		ended := make(chan error, 1)
		go func() { ended <- r.restate(t.Context(), i) }()
		synctest.Wait() // it has told two, and waits
		expect(t, j, "restate ns/a(u-a)@1", "restate ns/b(u-b)@2")
		do(t, s.Update(state(t, "ns", "b", "u-b", 11)))
		do(t, s.Update(state(t, "ns", "changed", "u-changed", 12)))
		do(t, s.Delete(state(t, "ns", "deleted", "u-deleted", 13)))
		do(t, s.Delete(state(t, "ns", "again", "u-again", 14)))
		do(t, s.Add(state(t, "ns", "again", "u-other", 15)))
		do(t, s.Add(state(t, "ns", "new", "u-new", 16)))
		s.UpdateResourceVersion("16")
		i.mu.Lock()
		j.take()
		r.room = 2
		i.mu.Unlock()
		time.Sleep(time.Second) // of a synctest bubble
		synctest.Wait()
		expect(t, j, "restate ns/changed(u-changed)@12", "restate ns/f(u-f)@6") // and for the end there is no room
		i.mu.Lock()
		r.room = 1
		i.mu.Unlock()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect(t, j, "restated, at 16")
	})
}

// An object that is created before r accepts anything is restated: the sink's listener drops its addition, if the sink
// was sent it before a restart, and a new destination would never be sent the object.
func TestRestateWhatCameWhileItWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
		i.AddEventHandler(j)
		s := (*store)(i)
		do(t, s.Replace([]any{state(t, "ns", "a", "u-a", 1)}, "1"))
		r := &retold{j, 0}
		ended := make(chan error, 1)
		go func() { ended <- r.restate(t.Context(), i) }()
		synctest.Wait() // it waits for room
		do(t, s.Add(state(t, "ns", "b", "u-b", 2)))
		j.take()
		i.mu.Lock()
		r.room = 3
		i.mu.Unlock()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect(t, j, "restate ns/a(u-a)@1", "restate ns/b(u-b)@2", "restated, at 1")
	})
}

// A change has to wait for one slice at most, however many objects there are.
func TestRestateInSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
		i.AddEventHandler(j)
		s := (*store)(i)
		var all []any
		for n := range 2*restateSlice + 10 {
			all = append(all, state(t, "ns", fmt.Sprint("o", n), fmt.Sprint("u", n), n+1))
		}
		do(t, s.Replace(all, "1000"))
		entries := i.entries()
		r := &retold{j, 1 << 30}
		for _, want := range []int{restateSlice, restateSlice, 10} {
			j.take()
			before := len(entries)
			do(t, i.Turn(t.Context(), r, func(string) { entries = i.restateSome(r, entries) }))
			if got := len(j.take()); got != want || before-len(entries) != want {
				t.Errorf("%d objects at once, want %d", got, want)
			}
		}
	})
}

// After it resumed, an informer may lag behind what an earlier process told; after it ended, behind what its successor
// tells.
func TestRestateWhatIsKnownForSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, j := New(
			Config{Source: Source{Resource: configMaps}, Known: []*object.Object{state(t, "ns", "a", "u", 4)}, ResumeAt: "10"},
		), &journal{}
		i.AddEventHandler(j)
		do(t, (*store)(i).Replace(nil, "10"))
		w := i.watchOpened(t.Context(), watch.NewFake())
		r := &retold{j, 1 << 30}
		began := time.Now()
		if err := r.restate(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < ResumeGrace || waited > ResumeGrace+time.Second {
			t.Errorf("waited %s", waited)
		}
		expect(t, j, "restate ns/a(u)@4", "restated, at 10")

		i.mu.Lock()
		i.resuming = true // the watch, which brings what the informer lags behind, is opened later
		i.mu.Unlock()
		ended := make(chan error, 1)
		began = time.Now()
		go func() { ended <- r.restate(t.Context(), i) }()
		time.Sleep(time.Minute)
		w.Stop() // the watch before, which changes nothing
		w = i.watchOpened(t.Context(), watch.NewFake())
		defer w.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began) - time.Minute; waited < ResumeGrace || waited > ResumeGrace+time.Second {
			t.Errorf("waited %s after the watch was opened", waited)
		}
		expect(t, j, "restate ns/a(u)@4", "restated, at 10")

		ctx, cancel := context.WithCancel(t.Context())
		r.room = 0
		go func() { ended <- r.restate(ctx, i) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		i.ended = true
		if err := r.restate(t.Context(), i); !errors.Is(err, ErrEnded) {
			t.Errorf("after its end: %v", err)
		}
		expect(t, j)
	})
}

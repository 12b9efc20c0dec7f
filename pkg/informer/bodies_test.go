package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// shelf keeps bytes as a checkpoint does.
type shelf struct {
	noRecord

	lists   int // first lists
	states  map[string]string
	fetched []string
	mu      sync.Mutex
	refuses error
}

var (
	_ Record = (*shelf)(nil)
	_ Stage  = (*shelf)(nil)
)

func (s *shelf) Fetch(o *object.Object) ([]byte, error) {
	s.fetched = append(s.fetched, label(o))
	raw, ok := s.states[label(o)]
	if !ok {
		return nil, fmt.Errorf("%s is not kept", label(o))
	}
	return []byte(raw), nil
}

func (s *shelf) take() (fetched []string) { fetched, s.fetched = s.fetched, nil; return fetched }

func (s *shelf) Stage() Stage { clear(s.states); return s }

func (s *shelf) set(refuses error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = refuses
}

func (s *shelf) Put(o *object.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses == nil {
		s.states[label(o)] = string(o.Raw)
	}
	return s.refuses
}

func (s *shelf) Remove(o *object.Object) error { delete(s.states, label(o)); return s.refuses }

func (s *shelf) FirstList([]*object.Object, string) bool { s.lists++; return true }
func (s *shelf) Added(o *object.Object)                  { s.states[label(o)] = string(o.Raw) }
func (s *shelf) Updated(o *object.Object)                { s.Added(o) }

// reader is a handler that asks for the bytes of all that it is given.
type reader struct {
	t *testing.T
	journal
}

func (r *reader) read(obj any) {
	o := obj.(*object.Object)
	raw, err := o.Bytes()
	if err != nil {
		r.t.Error(err)
		return
	}
	if _, err := o.Bytes(); err != nil { // another handler asks
		r.t.Error(err)
	}
	again, err := object.New(raw)
	if err != nil || label(again) != label(o) {
		r.t.Errorf("%s has the bytes %s (%v)", label(o), raw, err)
	}
}
func (r *reader) OnAdd(obj any, initial bool) { r.read(obj); r.journal.OnAdd(obj, initial) }
func (r *reader) OnUpdate(o, n any)           { r.read(o); r.read(n); r.journal.OnUpdate(o, n) }
func (r *reader) OnDelete(obj any)            { r.read(obj); r.journal.OnDelete(obj) }

// listed passes objects through what a list passes them through.
func listed(t *testing.T, i *Informer, objects ...*object.Object) []any {
	t.Helper()
	each := i.beginList(t.Context())
	var items []any
	for _, o := range objects {
		o, err := each(watch.Added, o)
		do(t, err)
		items = append(items, o)
	}
	return items
}

// holdsNoBytes looks into the index.
func holdsNoBytes(t *testing.T, i *Informer) {
	t.Helper()
	for _, o := range i.Objects() {
		if o.Raw != nil {
			t.Errorf("the index holds the bytes of %s", label(o))
		}
	}
}

func TestBytesAreKeptElsewhere(t *testing.T) {
	kept := &shelf{states: map[string]string{}}
	i := New(Config{Source: Source{Resource: configMaps}, Record: kept})
	r := &reader{t: t}
	i.AddEventHandler(r)
	s := (*store)(i)

	first := listed(t, i, state(t, "a", "x", "u1", 1), state(t, "a", "y", "u2", 2))
	for _, o := range first {
		if o.(*object.Object).Raw != nil {
			t.Error("the list holds bytes")
		}
	}
	do(t, s.Replace(first, "3"))
	expect(t, &r.journal, "add a/x(u1)@1 initial=true", "add a/y(u2)@2 initial=true", "synced 3, 2 objects")
	if diff := cmp.Diff([]string{"a/x(u1)@1", "a/y(u2)@2"}, kept.take()); diff != "" || kept.lists != 1 {
		t.Errorf("%d first lists, each object is fetched once: %s", kept.lists, diff)
	}
	holdsNoBytes(t, i)

	i.known(state(t, "a", "x", "u1", 1)).SetDecision(3, true)
	now := state(t, "a", "x", "u1", 4)
	now.SetDecision(3, false)
	do(t, s.Update(now))
	do(t, s.Delete(state(t, "a", "y", "u2", 5)))
	expect(t, &r.journal, "update a/x(u1)@1 -> a/x(u1)@4", "delete a/y(u2)@5 unseen=false")
	if belongs, known := i.known(now).Decision(3); belongs || !known {
		t.Error("the index lacks what was decided of the new state")
	}
	if diff := cmp.Diff([]string{"a/x(u1)@1"}, kept.take()); diff != "" {
		t.Error("only old states are fetched: " + diff)
	}
	holdsNoBytes(t, i)

	// Another list: the bytes of known objects are not kept, the bytes of new objects are.
	again := listed(t, i, state(t, "a", "x", "u1", 4), state(t, "a", "z", "u3", 6))
	if again[0].(*object.Object).Raw != nil || again[1].(*object.Object).Raw == nil {
		t.Error("a list holds the bytes of what differs, and of nothing else")
	}
	do(t, s.Replace(again, "7"))
	do(t, s.Replace(listed(t, i, state(t, "a", "x", "u9", 8)), "9"))
	expect(t, &r.journal, "gap 3..7", "add a/z(u3)@6 initial=false",
		"gap 7..9", "delete a/z(u3)@6 unseen=true", "delete a/x(u1)@4 unseen=true", "add a/x(u9)@8 initial=false")
	holdsNoBytes(t, i)
	if kept.lists != 1 {
		t.Errorf("%d first lists", kept.lists)
	}
}

// A full disk delays a first list. The informer logs this, and continues when there is room.
func TestAListWaitsUntilItsBytesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &shelf{states: map[string]string{}, refuses: errors.New("no space left on device")}
		i := New(Config{Source: Source{Resource: configMaps}, Record: kept})
		ctx, cancel := context.WithCancel(t.Context())
		each := i.beginList(ctx)
		o, done := state(t, "a", "x", "u1", 1), make(chan error, 1)
		var listed *object.Object
		go func() {
			var err error
			listed, err = each(watch.Added, o)
			done <- err
		}()
		time.Sleep(10 * stageRetry)
		synctest.Wait()
		if got := i.Status().LastError; !strings.Contains(got, "no space left on device") || len(done) > 0 {
			t.Errorf("the status says %q; it waits: %t", got, len(done) == 0)
		}
		kept.set(nil)
		do(t, <-done)
		if got := i.Status().LastError; got != "" || listed.Raw != nil || len(kept.states) != 1 {
			t.Errorf("in the end the status says %q, and it has its bytes: %t", got, listed.Raw != nil)
		}
		kept.set(errors.New("full again"))
		cancel()
		if _, err := each(watch.Added, state(t, "a", "y", "u2", 2)); err == nil {
			t.Error("the list goes on after its end")
		}
		if i.beginList(ctx) != nil {
			t.Error("a list begins after the end of its request")
		}
	})
}

// A watch-list may contain the deletion of an object before it is complete.
func TestADeletionWithinAList(t *testing.T) {
	kept := &shelf{states: map[string]string{}}
	i := New(Config{Source: Source{Resource: configMaps}, Record: kept})
	each := i.beginList(t.Context())
	for _, eventType := range []watch.EventType{watch.Added, watch.Deleted} {
		_, err := each(eventType, state(t, "a", "y", "u2", 2))
		do(t, err)
	}
	_, err := each(watch.Added, state(t, "a", "x", "u1", 1))
	do(t, err)
	if len(kept.states) != 1 {
		t.Errorf("%d states are kept", len(kept.states))
	}
}

// unstored is a record whose process ends before it has stored a first list.
type unstored struct{ noRecord }

func (unstored) FirstList([]*object.Object, string) bool { return false }

// If the process ends before the first list is stored, nothing of the list is delivered.
func TestAFirstListThatIsNotStored(t *testing.T) {
	i, j := New(Config{Source: Source{Resource: configMaps}, Record: unstored{}}), &journal{}
	i.AddEventHandler(j)
	do(t, (*store)(i).Replace(list(state(t, "a", "x", "u1", 1)), "3"))
	expect(t, j)
	if i.HasSynced() {
		t.Error("synced")
	}
}

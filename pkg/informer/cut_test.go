package informer

import (
	"context"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// canceling is a handler that ends the informer's context while it is given a change.
type canceling struct {
	cache.ResourceEventHandlerFuncs

	cancel context.CancelFunc
}

func (c canceling) OnUpdate(any, any) { c.cancel() }

// A change that is being delivered when the process ends reaches all handlers, and later changes reach none.
func TestAStopWithinAChange(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i, before, after := New(Config{Source: Source{Resource: configMaps}}), &journal{}, &journal{}
	i.AddEventHandler(before)
	i.AddEventHandler(canceling{cancel: cancel})
	i.AddEventHandler(after)
	i.ctx = ctx // as Run does
	s := (*store)(i)
	do(t, s.Replace(list(labelled(t, "x", "u1", 1, "a"), labelled(t, "y", "u2", 2, "a")), "3"))
	do(t, s.Update(labelled(t, "x", "u1", 4, "a")))
	s.UpdateResourceVersion("4")
	want := []string{
		"add a/x(u1)@1 initial=true",
		"add a/y(u2)@2 initial=true",
		"synced 3, 2 objects",
		"update a/x(u1)@1 -> a/x(u1)@4",
	}
	expect(t, before, want...)
	expect(t, after, want...)

	do(t, s.Add(labelled(t, "z", "u3", 5, "a")))
	s.UpdateResourceVersion("5")
	do(t, s.Delete(labelled(t, "y", "u2", 6, "a")))
	s.UpdateResourceVersion("6")
	do(t, s.Replace(list(), "7"))
	expect(t, before)
	expect(t, after)
	if i.position != "4" {
		t.Errorf("position %s", i.position)
	}
}

// A list after a watch that could not be continued is delivered as a whole: there is no position before the end of the
// list, so the next process would deliver its changes again, and would not know the objects that it added.
func TestAStopWithinARelist(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
	i.AddEventHandler(j)
	i.AddEventHandler(canceling{cancel: cancel})
	i.ctx = ctx // as Run does
	s := (*store)(i)
	do(t, s.Replace(list(labelled(t, "x", "u1", 1, "a"), labelled(t, "y", "u2", 2, "a")), "3"))
	j.take()
	do(t, s.Replace(list(labelled(t, "x", "u1", 4, "a"), labelled(t, "z", "u3", 5, "a")), "6"))
	expect(t, j,
		"gap 3..6",
		"delete a/y(u2)@2 unseen=true",
		"update a/x(u1)@1 -> a/x(u1)@4",
		"add a/z(u3)@5 initial=false",
	)
	if i.position != "6" {
		t.Errorf("position %s", i.position)
	}
	do(t, s.Add(labelled(t, "v", "u4", 7, "a")))
	expect(t, j)
}

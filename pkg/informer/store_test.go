package informer

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/deltabridge/deltabridge/pkg/object"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// state makes one state of an object.
func state(t testing.TB, namespace, name, uid string, rv int) *object.Object {
	t.Helper()
	o, err := object.New(
		fmt.Appendf(
			nil,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d","ownerReferences":[{"uid":"owner-of-%s"}]}}`,
			name,
			namespace,
			uid,
			rv,
			name,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// journal is a handler that records its calls.
type journal struct{ lines []string }

func (j *journal) note(format string, args ...any) {
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) OnAdd(obj any, initial bool) { j.note("add %s initial=%t", label(obj), initial) }
func (j *journal) OnUpdate(o, n any)           { j.note("update %s -> %s", label(o), label(n)) }
func (j *journal) OnDelete(obj any) {
	j.note("delete %s unseen=%t", label(obj), obj.(*object.Object).FinalStateUnknown)
}
func (j *journal) OnSynced(rv string, n int) { j.note("synced %s, %d objects", rv, n) }
func (j *journal) OnGap(from, to, _ string)  { j.note("gap %s..%s", from, to) }
func (j *journal) take() (lines []string)    { lines, j.lines = j.lines, nil; return lines }
func label(obj any) string {
	o := obj.(*object.Object)
	return o.Namespace + "/" + o.Name + "(" + string(o.UID) + ")@" + o.ResourceVersion
}

func expect(t *testing.T, j *journal, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, j.take()); diff != "" {
		t.Error(diff)
	}
}

func list(objects ...*object.Object) (items []any) {
	for _, o := range objects {
		items = append(items, o)
	}
	return items
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestChanges(t *testing.T) {
	i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
	i.AddEventHandler(j)
	s := (*store)(i)
	if i.HasSynced() {
		t.Error("synced before the first list")
	}
	do(t, s.Replace(list(state(t, "a", "y", "u2", 9), state(t, "a", "x", "u1", 4)), "10"))
	expect(t, j, "add a/x(u1)@4 initial=true", "add a/y(u2)@9 initial=true", "synced 10, 2 objects")
	if !i.HasSynced() {
		t.Error("not synced after the first list")
	}

	do(t, s.Add(state(t, "b", "z", "u3", 11)))
	do(t, s.Update(state(t, "a", "x", "u1", 12)))
	do(t, s.Update(state(t, "a", "x", "u1", 12))) // nothing changed
	do(t, s.Delete(state(t, "a", "y", "u2", 13)))
	do(t, s.Delete(state(t, "a", "y", "u2", 13))) // known to be deleted
	expect(t, j, "add b/z(u3)@11 initial=false", "update a/x(u1)@4 -> a/x(u1)@12", "delete a/y(u2)@13 unseen=false")

	// Deleted and created again under one name, seen as one update.
	do(t, s.Update(state(t, "a", "x", "u4", 15)))
	expect(t, j, "delete a/x(u1)@12 unseen=true", "add a/x(u4)@15 initial=false")
	if got := i.Status(); got.Objects != 2 {
		t.Errorf("%d objects", got.Objects)
	}
}

func TestRelistTellsOnlyWhatChanged(t *testing.T) {
	i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
	i.AddEventHandler(j)
	s := (*store)(i)
	do(
		t,
		s.Replace(
			list(
				state(t, "a", "same", "u1", 1),
				state(t, "a", "changed", "u2", 2),
				state(t, "a", "gone", "u3", 3),
				state(t, "a", "again", "u4", 4),
			),
			"5",
		),
	)
	s.UpdateResourceVersion("7")
	j.take()
	do(
		t,
		s.Replace(
			list(
				state(t, "a", "new", "u6", 9),
				state(t, "a", "same", "u1", 1),
				state(t, "a", "changed", "u2", 8),
				state(t, "a", "again", "u5", 10),
			),
			"11",
		),
	)
	expect(t, j, "gap 7..11", "delete a/gone(u3)@3 unseen=true", "update a/changed(u2)@2 -> a/changed(u2)@8",
		"add a/new(u6)@9 initial=false", "delete a/again(u4)@4 unseen=true", "add a/again(u5)@10 initial=false")
	if got := i.Status(); got.Relists != 1 || got.ResourceVersion != "11" {
		t.Errorf("%d re-lists, at %s", got.Relists, got.ResourceVersion)
	}
}

func TestKnownObjectsAreTheStartingPoint(t *testing.T) {
	i := New(
		Config{
			Source: Source{Resource: configMaps},
			Known:  []*object.Object{state(t, "a", "same", "u1", 1), state(t, "a", "gone", "u2", 2)},
		},
	)
	j := &journal{}
	i.AddEventHandler(j)
	do(t, (*store)(i).Replace(list(state(t, "a", "same", "u1", 1)), "5"))
	expect(t, j, "delete a/gone(u2)@2 unseen=true", "synced 5, 1 objects")
}

func TestAcceptHidesOtherNamespaces(t *testing.T) {
	i := New(Config{Source: Source{Resource: configMaps}, Select: func(namespace string) bool { return namespace == "a" }})
	j := &journal{}
	i.AddEventHandler(j)
	s := (*store)(i)
	do(t, s.Replace(list(state(t, "a", "x", "u1", 1), state(t, "b", "x", "u2", 2)), "5"))
	do(t, s.Add(state(t, "b", "y", "u3", 6)))
	do(t, s.Delete(state(t, "b", "x", "u2", 7)))
	expect(t, j, "add a/x(u1)@1 initial=true", "synced 5, 1 objects")
	if n := len(i.Objects()); n != 1 {
		t.Errorf("%d objects are kept", n)
	}
}

func TestDeleteAll(t *testing.T) {
	i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
	i.AddEventHandler(j)
	do(t, (*store)(i).Replace(list(state(t, "a", "x", "u1", 3), state(t, "a", "y", "u2", 1)), "5"))
	j.take()
	i.DeleteAll()
	expect(t, j, "delete a/y(u2)@1 unseen=true", "delete a/x(u1)@3 unseen=true")
	if i.Status().Objects != 0 {
		t.Error("objects are left")
	}
}

// Whatever a server does, and however the watch is interrupted, a handler that applies all changes has the same objects
// as the server. Each change is possible: no existing object is added, and no missing object is updated.
func FuzzHandlersFollowTheServer(f *testing.F) {
	f.Add([]byte{0, 17, 33, 255, 1, 2, 254, 40, 9, 9, 255})
	f.Add([]byte{255, 255, 3, 200, 3, 254, 3, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		server := map[string]*object.Object{}
		seen := &replica{t: t, objects: map[string]*object.Object{}}
		i := New(Config{Source: Source{Resource: configMaps}})
		i.AddEventHandler(seen)
		s := (*store)(i)
		rv, watching := 0, false
		for _, step := range steps {
			rv++
			name := "n" + strconv.Itoa(int(step%5))
			known := server[name]
			switch {
			case step == 255: // list
				var all []any
				for _, o := range server {
					all = append(all, o)
				}
				do(t, s.Replace(all, strconv.Itoa(rv)))
				watching = true
				seen.equals(server)
				continue
			case step == 254: // the watch ends; changes go unseen until the next list
				watching = false
				continue
			case known != nil && step%3 == 0:
				delete(server, name)
				if watching {
					do(t, s.Delete(state(t, "a", name, string(known.UID), rv)))
				}
			default:
				uid := "u" + strconv.Itoa(rv)
				if known != nil {
					uid = string(known.UID)
				}
				server[name] = state(t, "a", name, uid, rv)
				if watching {
					do(t, s.Add(server[name]))
				}
			}
			if watching {
				seen.equals(server)
			}
		}
	})
}

// replica is a handler that applies all changes to a map.
type replica struct {
	t       *testing.T
	objects map[string]*object.Object
}

func (m *replica) OnAdd(obj any, _ bool) {
	o := obj.(*object.Object)
	if m.objects[o.Name] != nil {
		m.t.Errorf("added %s, which is there", label(o))
	}
	m.objects[o.Name] = o
}

func (m *replica) OnUpdate(oldObj, newObj any) {
	o, n := oldObj.(*object.Object), newObj.(*object.Object)
	if m.objects[n.Name] != o || o.UID != n.UID || cmp.Compare(o.ResourceVersion, n.ResourceVersion) == 0 {
		m.t.Errorf("updated %s -> %s, have %v", label(o), label(n), m.objects[n.Name])
	}
	m.objects[n.Name] = n
}

func (m *replica) OnDelete(obj any) {
	o := obj.(*object.Object)
	if known := m.objects[o.Name]; known == nil || known.UID != o.UID {
		m.t.Errorf("deleted %s, which is not there", label(o))
	}
	delete(m.objects, o.Name)
}

func (m *replica) equals(server map[string]*object.Object) {
	m.t.Helper()
	if len(m.objects) != len(server) {
		m.t.Fatalf("replica has %d objects, server %d", len(m.objects), len(server))
	}
	for name, o := range server {
		if got := m.objects[name]; got == nil || got.UID != o.UID || got.ResourceVersion != o.ResourceVersion {
			m.t.Fatalf("replica of %s is %v", label(o), got)
		}
	}
}

// An informer goes on where another one ended. What happened in between is a gap like that of any re-list, unless
// nothing can have happened.
func TestSuccessor(t *testing.T) {
	known := func(t *testing.T) []*object.Object { return []*object.Object{state(t, "a", "x", "u1", 4)} }
	listed := func(t *testing.T) *Informer {
		i := New(Config{Source: Source{Resource: configMaps}})
		do(t, (*store)(i).Replace(list(known(t)...), "10"))
		(*store)(i).UpdateResourceVersion("12")
		return i
	}
	for _, tt := range []struct {
		name        string
		predecessor func(t *testing.T) *Informer
		at          string
		want        []string
	}{
		{"listed again", listed, "20", []string{"gap 12..20", "update a/x(u1)@4 -> a/x(u1)@15", "add a/y(u2)@16 initial=false"}},
		{"nothing happened anywhere", listed, "12", []string{"update a/x(u1)@4 -> a/x(u1)@15", "add a/y(u2)@16 initial=false"}},
		{
			"the predecessor succeeded another one, and had no list of its own",
			func(t *testing.T) *Informer {
				i := New(Config{Source: Source{Resource: configMaps}})
				i.Succeed(listed(t))
				return i
			},
			"20",
			[]string{"gap 12..20", "update a/x(u1)@4 -> a/x(u1)@15", "add a/y(u2)@16 initial=false"},
		},
		{
			"the predecessor did not come to resume",
			func(t *testing.T) *Informer {
				return New(Config{Source: Source{Resource: configMaps}, Known: known(t), ResumeAt: "9"})
			},
			"20",
			[]string{"gap 9..20", "update a/x(u1)@4 -> a/x(u1)@15", "add a/y(u2)@16 initial=false"},
		},
		{
			"the predecessor had nothing",
			func(t *testing.T) *Informer { return New(Config{Source: Source{Resource: configMaps}}) },
			"20",
			[]string{"add a/x(u1)@15 initial=true", "add a/y(u2)@16 initial=true", "synced 20, 2 objects"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i, j := New(Config{Source: Source{Resource: configMaps}}), &journal{}
			i.AddEventHandler(j)
			i.Succeed(tt.predecessor(t))
			do(t, (*store)(i).Replace(list(state(t, "a", "x", "u1", 15), state(t, "a", "y", "u2", 16)), tt.at))
			expect(t, j, tt.want...)
		})
	}
}

// The predecessor ended while it delivered the known objects to new handlers: one of them had received all, and another
// one none. The successor delivers its list to both, and the deletion to the one that knew the object.
func TestSuccessorOfAReplay(t *testing.T) {
	known := []*object.Object{state(t, "a", "x", "u1", 4), state(t, "a", "y", "u2", 5)}
	ctx, cancel := context.WithCancel(t.Context())
	one, other := &journal{}, &journal{}
	predecessor := New(
		Config{Source: Source{Resource: configMaps}, Known: known, ResumeAt: "9", ListWatch: &cache.ListWatch{}},
	)
	predecessor.AddEventHandlerWithReplay(one, false)
	predecessor.AddEventHandlerWithReplay(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { cancel() }}, false)
	predecessor.AddEventHandlerWithReplay(other, false)
	do(t, predecessor.Run(ctx))
	expect(t, one, "add a/x(u1)@4 initial=true", "add a/y(u2)@5 initial=true", "synced 9, 2 objects")
	expect(t, other)
	i := New(Config{Source: Source{Resource: configMaps}})
	for _, j := range []*journal{one, other} {
		i.AddEventHandlerWithReplay(j, false)
	}
	i.Succeed(predecessor)
	i.replay()
	do(t, (*store)(i).Replace(list(state(t, "a", "x", "u1", 4)), "20"))
	for _, j := range []*journal{one, other} {
		expect(t, j, "gap 9..20", "delete a/y(u2)@5 unseen=true", "add a/x(u1)@4 initial=true", "synced 20, 1 objects")
	}
	do(t, (*store)(i).Add(state(t, "a", "z", "u3", 21)))
	expect(t, other, "add a/z(u3)@21 initial=false")
}

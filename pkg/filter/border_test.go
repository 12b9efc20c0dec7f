package filter

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

// recorder is the handler behind client-go's filtering handler: it asks Sends, as a sink's handler does.
type recorder struct {
	filter *ResourceFilter
	got    []string
}

func (r *recorder) record(op event.Type, old, obj any) {
	before, _ := old.(*object.Object)
	o := obj.(*object.Object)
	if r.filter.Sends(op, before, o) {
		r.got = append(r.got, op.String()+" "+o.ResourceVersion)
	}
}

func (r *recorder) OnAdd(obj any, _ bool) { r.record(event.Added, nil, obj) }
func (r *recorder) OnUpdate(old, obj any) { r.record(event.Updated, old, obj) }
func (r *recorder) OnDelete(obj any)      { r.record(event.Deleted, nil, obj) }
func state(version, json string) *object.Object {
	o := newObject("team-a", "x", json)
	o.ResourceVersion = version
	return o
}

// An object's life over the border of a filter, through client-go's own handler.
func TestBorder(t *testing.T) {
	const life = "added 1 outside, updated 2 enters, updated 3 inside, updated 4 leaves, updated 5 outside, updated 6 enters, deleted 7 inside"
	states := []*object.Object{
		state(
			"1",
			`{"inside":false}`,
		),
		state("2", `{"inside":true}`),
		state("3", `{"inside":true,"n":1}`),
		state("4", `{"inside":false}`),
		state("5", `{"inside":false,"n":2}`),
		state("6", `{"inside":true}`),
		state("7", `{"inside":true}`),
	}
	tests := []struct {
		name string
		rule Rule
		want []string
	}{
		{
			"everything",
			Rule{},
			[]string{"added 1", "updated 2", "updated 3", "updated 4", "updated 5", "updated 6", "deleted 7"},
		},
		// A leave carries the last state that belonged.
		{"membership", Rule{When: "object.inside"}, []string{"added 2", "updated 3", "deleted 3", "added 6", "deleted 7"}},
		{
			"membership and operations",
			Rule{When: "object.inside", Operations: []string{"added", "deleted"}},
			[]string{"added 2", "deleted 3", "added 6", "deleted 7"},
		},
		{"membership and one operation", Rule{When: "object.inside", Operations: []string{"updated"}}, []string{"updated 3"}},
		// A condition on the change moves nothing over a border.
		{
			"change",
			Rule{When: "object.inside && operation != ''"},
			[]string{"updated 2", "updated 3", "updated 6", "deleted 7"},
		},
		{
			"difference",
			Rule{When: "old == null || object.inside != old.inside"},
			[]string{"added 1", "updated 2", "updated 4", "updated 6", "deleted 7"},
		},
		{"another namespace", Rule{Namespaces: []string{"team-b"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			failures := 0
			f := mustCompile(t, []Rule{tt.rule}, Options{OnError: func(int, error) { failures++ }, Logger: quiet()})
			r := &recorder{filter: f.For(gvr(t, "/v1/pods"))}
			handler := filtering(r)

			handler.OnAdd(states[0], false)
			for i := 1; i < len(states)-1; i++ {
				handler.OnUpdate(states[i-1], states[i])
			}
			handler.OnDelete(states[len(states)-1])

			if diff := cmp.Diff(tt.want, r.got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", life, diff)
			}
			if failures != 0 {
				t.Errorf("%d expressions failed", failures)
			}
		})
	}
}

// filtering is client-go's handler with the object conditions of the recorder's filter.
func filtering(r *recorder) cache.ResourceEventHandler {
	belongs := func(obj any) bool { return r.filter.Belongs(obj.(*object.Object)) }
	return cache.FilteringResourceEventHandler{FilterFunc: belongs, Handler: r}
}

// Between two rules an object moves from one to the other without leaving the sink.
func TestMoveBetweenRules(t *testing.T) {
	f := mustCompile(t, []Rule{{When: "object.n == 1"}, {When: "object.n == 2"}}, Options{})
	r := &recorder{filter: f.For(gvr(t, "/v1/pods"))}
	handler := filtering(r)
	one, two, three := state("1", `{"n":1}`), state("2", `{"n":2}`), state("3", `{"n":3}`)
	handler.OnAdd(one, true)
	handler.OnUpdate(one, two)
	handler.OnUpdate(two, three)
	if diff := cmp.Diff([]string{"added 1", "updated 2", "deleted 2"}, r.got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The last update before a deletion, such as the removal of the last finalizer, is seen as the deletion alone: its
// state need not be in the filter although the object was. Whether the sink knows the object is what was decided of the
// state before, and a deletion that carries these decisions follows them.
func TestDeletionFollowsTheDecisionsItCarries(t *testing.T) {
	f := mustCompile(t, []Rule{{When: "object.n == 0"}, {When: "object.finalizers.size() > 0"}}, Options{})
	r := &recorder{filter: f.For(gvr(t, "/v1/pods"))}
	handler := filtering(r)
	known, deleted := state("1", `{"n":1,"finalizers":["x"]}`), state("2", `{"n":1,"finalizers":[]}`)
	handler.OnAdd(known, false)
	for slot := range object.Slots {
		if belongs, decided := known.Decision(slot); decided {
			deleted.SetDecision(slot, belongs)
		}
	}
	handler.OnDelete(deleted)
	if diff := cmp.Diff([]string{"added 1", "deleted 2"}, r.got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

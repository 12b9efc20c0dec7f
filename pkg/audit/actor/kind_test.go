package actor

import (
	"fmt"
	"testing"
	"time"
)

func TestKinds(t *testing.T) {
	const marked, done = `,"deletionTimestamp":"x","deletionGracePeriodSeconds":30,"finalizers":["a"]`,
		`,"deletionTimestamp":"x","deletionGracePeriodSeconds":30`
	state := func(resource, more, node string) *State {
		if more == "unavailable" {
			return &State{}
		}
		s := StateOf(resource, fmt.Appendf(nil,
			`{"metadata":{"creationTimestamp":"2026-11-20T12:25:57Z"%s},"spec":{"nodeName":%q}}`, more, node))
		if !s.Created.Equal(time.Date(2026, 11, 20, 12, 25, 57, 0, time.UTC)) {
			t.Errorf("created %v", s.Created)
		}
		return &s
	}
	for _, c := range []struct {
		resource, old, now, oldNode, node string
		want                              Kind
	}{
		{now: "", want: Updated},
		{old: "unavailable", want: Updated},
		{now: "unavailable", want: 0},
		{old: `,"finalizers":["a"]`, want: Updated},
		{now: marked, want: Marked},
		{old: "unavailable", now: marked, want: 0},
		{old: marked, now: marked, want: Updated},
		{old: marked, now: done, want: Remarked},
		{old: done, now: `,"deletionTimestamp":"x","deletionGracePeriodSeconds":0`, want: Remarked},
		{resource: "pods", node: "n", want: Bound},
		{resource: "pods", oldNode: "n", node: "n", want: Updated},
		{resource: "pods", old: "unavailable", node: "n", want: 0},
		{resource: "others", node: "n", want: Updated},
	} {
		if got := state(c.resource, c.now, c.node).Update(state(c.resource, c.old, c.oldNode)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for more, want := range map[string]Kind{"": Deleted, `,"finalizers":["a"]`: Deleted, done: Finished, "unavailable": Finished} {
		if got := state("", more, "").Deletion(); got != want {
			t.Errorf("deletion of %s: %v, want %v", more, got, want)
		}
	}
}

// A state without the parts that its kind depends on is not known.
func TestHiddenParts(t *testing.T) {
	const created = `"creationTimestamp":"2026-11-20T12:25:57Z"`
	for _, c := range []struct{ resource, raw string }{
		{"configmaps", `{"metadata":{"uid":"u"}}`},
		{"pods", `{"metadata":{` + created + `},"spec":"sha256:x"}`},
		{"pods", `{"metadata":{` + created + `}}`},
		{"pods", ``},
	} {
		if got := StateOf(c.resource, []byte(c.raw)); got != (State{}) {
			t.Errorf("%s: %+v", c.raw, got)
		}
	}
}

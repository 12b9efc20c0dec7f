package event

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testActors = Actors{
	By: Actor{
		Grade: ActorProven, User: "system:serviceaccount:kube-system:gc", Groups: []string{"a,b", `c"<é`}, As: "bob",
		AsGroups: []string{"devs"}, Address: "10.0.0.7", Agent: "kubectl/v1.37", AuditID: "e1",
	},
	Requester: &Actor{Grade: ActorSole, User: "alice", As: "root", AuditID: "e0"},
}

func actorAttributes(a *Actors) map[string]string {
	got := map[string]string{}
	a.attributes(func(name, value string) bool { got[name] = value; return true })
	return got
}

func TestActorAttributes(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := map[string]struct {
		actors Actors
		want   map[string]string
	}{
		"all": {testActors, map[string]string{
			"actorgrade": "proven", "actor": "system:serviceaccount:kube-system:gc", "actorgroups": `["a,b","c\"<é"]`,
			"actoras": "bob", "actorasgroups": `["devs"]`, "actoraddress": "10.0.0.7", "actoragent": "kubectl/v1.37",
			"auditid": "e1", "requestergrade": "sole", "requester": "alice", "requesteras": "root", "requesterauditid": "e0",
		}},
		"unknown": {Actors{}, map[string]string{"actorgrade": "unknown"}},
		"unknown deletion": {Actors{Requester: &Actor{}}, map[string]string{
			"actorgrade": "unknown", "requestergrade": "unknown",
		}},
		"what clients choose": {
			Actors{By: Actor{Grade: ActorSole, User: long, Agent: "a\r\nb\xff", Groups: []string{long, long, "more"}}},
			map[string]string{
				"actorgrade": "sole", "actor": long[:1024] + "...", "actoragent": "a\ufffd\ufffdb\ufffd",
				"actorgroups": `["` + long[:1024] + `...","..."]`,
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, actorAttributes(&c.actors)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Actors survive the spill, count as memory, and are the same in both content modes.
func TestActorsInMessages(t *testing.T) {
	ev := Event{Type: Updated, Resource: pods, Object: podAt(t, "17")}
	m := encode(t, &Encoder{Cluster: "prod", Content: ContentStructured}, ev)
	plain, size := attributes(m), m.Size()
	m.Actors = &testActors
	want := actorAttributes(&testActors)
	maps.Copy(want, plain)
	if m.Size() < size+100 {
		t.Errorf("%d bytes, and %d without actors", m.Size(), size)
	}
	stored, err := m.AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = ParseStored(stored); err != nil {
		t.Fatal(err)
	}
	got, err := ParseStructured(m.Body())
	if err != nil || !json.Valid(m.Body()) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Attributes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMergedActors(t *testing.T) {
	at := func(typ Type, version, user string) *Message {
		m := encode(t, &Encoder{}, Event{Type: typ, Resource: pods, Object: podAt(t, version)})
		if user != "" {
			m.Actors = &Actors{By: Actor{Grade: ActorProven, User: user}}
		}
		return m
	}
	for _, c := range []struct {
		older, newer *Message
		want         *Actors
	}{
		{at(Added, "1", "a"), at(Updated, "2", "b"), &Actors{}},
		{at(Updated, "1", "a"), at(Updated, "2", "b"), &Actors{By: Actor{Grade: ActorProven, User: "b"}}},
		{at(Updated, "1", "a"), at(Deleted, "2", "b"), &Actors{By: Actor{Grade: ActorProven, User: "b"}}},
		{at(Updated, "1", "a"), at(Restated, "1", ""), &Actors{By: Actor{Grade: ActorProven, User: "a"}}},
		{at(Updated, "1", "a"), at(Restated, "2", ""), &Actors{}},
		{at(Added, "1", ""), at(Updated, "2", ""), nil},
	} {
		if diff := cmp.Diff(c.want, Merge(c.older, c.newer).Actors); diff != "" {
			t.Errorf("%v and %v: -want +got:\n%s", c.older.Type, c.newer.Type, diff)
		}
	}
}

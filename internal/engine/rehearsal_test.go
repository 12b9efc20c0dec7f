package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/pattern"
)

// A rehearsal sends each sink what passes its filter, in order, with the context that other objects give it, and at one
// time. Resources that are watched only for enrichment are sent to no sink.
func TestRehearsal(t *testing.T) {
	at := time.Unix(1e9, 0)
	var got []string
	r, err := NewRehearsal(RehearsalOptions{Sinks: []Sink{
		{Name: "all", Encoder: &event.Encoder{Cluster: "c"}, Enrich: enrich.Needs{NamespaceLabels: true}},
		{Name: "big", Encoder: &event.Encoder{Cluster: "c"}, Rules: []filter.Rule{{When: "object.n > 1"}}},
	}, Time: at, ClusterUID: "k", Deliver: func(sink string, m *event.Message) {
		if !m.Time.Equal(at) || m.ClusterUID != "k" {
			t.Errorf("the message has the time %v and the cluster %s", m.Time, m.ClusterUID)
		}
		labels := ""
		if m.Context != nil {
			labels = m.Context.NamespaceLabels
		}
		got = append(got, fmt.Sprintf("%s %v %s %s", sink, m.Type, m.ID, labels))
	}})
	if err != nil {
		t.Fatal(err)
	}
	scopes := []fleet.Scope{
		{Resources: pattern.ParseResources([]string{"pods"})},
		{Resources: pattern.ParseResources([]string{"namespaces"}), Auxiliary: true},
	}
	informers := fleet.Offline(scopes, []discovery.Served{
		{GroupResource: schema.GroupResource{Resource: "pods"}, Namespaced: true, Versions: []string{"v1"}},
		{GroupResource: schema.GroupResource{Resource: "namespaces"}, Versions: []string{"v1"}},
		{GroupResource: schema.GroupResource{Resource: "nodes"}, Versions: []string{"v1"}},
	})
	if len(informers) != 2 || !informers[0].Auxiliary() {
		t.Fatalf("the informers are %v, in the order in which they start", informers)
	}
	for _, i := range informers {
		r.Attach(i)
	}
	state := func(rv int) *object.Object {
		o, err := object.New(fmt.Appendf(nil,
			`{"metadata":{"namespace":"shop","name":"a","uid":"u","resourceVersion":"%d"},"n":%d}`, rv, rv))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	namespace, _ := object.New([]byte(`{"metadata":{"name":"shop","uid":"n","resourceVersion":"1","labels":{"a":"b"}}}`))
	pods := informers[1].Store()
	for _, err := range []error{
		informers[0].Store().Replace([]any{namespace}, "1"), pods.Replace(nil, "1"),
		pods.Add(state(1)), pods.Update(state(2)), pods.Update(state(2)), pods.Delete(state(3)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r.Restate(informers[1], state(4))
	want := []string{
		"all synced synced.c.pods.1 ", "big synced synced.c.pods.1 ",
		"all added u.1 a=b", "all updated u.2 a=b", "big added u.2 ", "all deleted u.deleted a=b", "big deleted u.deleted ",
		"all restated u.4 a=b", "big restated u.4 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if filters := r.Filters(); len(filters) != 2 || filters[1].Slots() != 1 {
		t.Errorf("the filters are %v", filters)
	}
}

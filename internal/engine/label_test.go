package engine

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// A message says in which history of etcd its resourceVersion counts. What is repeated on purpose has a delivery that no
// other message has, not even one of another process.
func TestLabel(t *testing.T) {
	deliveries := map[string]bool{}
	for _, run := range []string{"a-", "b-"} {
		p := &pipeline{clusterUID: "c", epoch: "e", run: run}
		for _, again := range []struct {
			typ   event.Type
			again bool
		}{{event.Restated, false}, {event.Added, true}, {event.Added, true}, {event.Updated, false}} {
			m := &event.Message{Type: again.typ}
			p.label(m, "500", again.again)
			if m.ClusterUID != "c" || m.Epoch != "e.500" || m.History != "500" {
				t.Errorf("%+v", m)
			}
			if m.Delivery != "" {
				deliveries[m.Delivery] = true
			}
		}
		m := new(event.Message)
		if p.label(m, "", false); m.Epoch != "e" || m.History != "" || m.Delivery != "" {
			t.Errorf("%+v", m)
		}
	}
	if len(deliveries) != 6 {
		t.Errorf("%d different deliveries: %v", len(deliveries), deliveries)
	}
}

package engine

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// A message contains the history of etcd to which its resourceVersion belongs. A restated event has a delivery that no
// other message has, not even a message of another process.
func TestLabel(t *testing.T) {
	deliveries := map[string]bool{}
	for _, run := range []string{"a-", "b-"} {
		p := &pipeline{clusterUID: "c", epoch: "e", run: run}
		for _, again := range []struct {
			typ   event.Type
			named string
		}{{event.Restated, ""}, {event.Restated, ""}, {event.Added, "list"}, {event.Added, "list"}, {event.Updated, ""}} {
			m := &event.Message{Type: again.typ}
			p.label(m, "500", again.named)
			if m.ClusterUID != "c" || m.Epoch != "e.500" || m.History != "500" {
				t.Errorf("%+v", m)
			}
			if m.Delivery != "" {
				deliveries[m.Delivery] = true
			}
		}
		m := new(event.Message)
		if p.label(m, "", ""); m.Epoch != "e" || m.History != "" || m.Delivery != "" {
			t.Errorf("%+v", m)
		}
	}
	if len(deliveries) != 5 || !deliveries["list"] {
		t.Errorf("%d different deliveries: %v", len(deliveries), deliveries)
	}
}

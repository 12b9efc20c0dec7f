package e2e

import (
	"encoding/json"
	"testing"
)

// once fails the test for each event that a reader gets more than once: control events included, ids and all.
func once(t *testing.T, broker string, partitions ...[]received) {
	t.Helper()
	seen, repeats := map[string]string{}, 0 // the place of each event
	for _, partition := range partitions {
		for _, r := range partition {
			id := r.id()
			if id == "" { // a tombstone
				continue
			}
			if r.data == nil { // a tombstone with the id of its deletion
				id = "the tombstone of " + id
			}
			if first, again := seen[id]; again {
				if repeats++; repeats <= 5 {
					t.Errorf("%s: %s %s came twice: %s; %s", broker, r.attributes["operation"], id, first, r.place)
				}
			}
			seen[id] = r.place
		}
	}
	if repeats > 5 {
		t.Errorf("%s: %d repetitions", broker, repeats)
	}
}

// gapsInPlace fails the test if a gap event of a re-list is not between what came before the hole and what came after
// it.
func gapsInPlace(t *testing.T, events []received) {
	t.Helper()
	for at, r := range events {
		var g gap
		if r.attributes["type"] != "dev.deltabridge.gap" {
			continue
		}
		if err := json.Unmarshal(r.data, &g); err != nil {
			t.Fatal(err)
		}
		from := revision(t, g.From)
		for n, e := range events {
			if !e.object() || e.attributes["resource"] != g.Resource || e.attributes["finalstateunknown"] == "true" {
				continue // an unseen deletion has the resourceVersion of the last known state
			}
			if later := revision(t, e.resourceVersion()) > from; later != (n > at) {
				t.Errorf("the gap event after %d is at %d, and %s@%s at %d", from, at, e.subject(), e.resourceVersion(), n)
			}
		}
	}
}

// sentOnce fails the test if the bridge, in its life so far, had more events acknowledged than the broker has stored
// for it: JetStream acknowledges a repetition, too, and drops it.
func sentOnce(t *testing.T, b *bridge, sink string, stored int) {
	t.Helper()
	if n := int(b.metric("deltabridge_events_acknowledged_total", "sink="+sink)); n != stored {
		t.Errorf("sink %s: %d events were acknowledged, and %d are stored: some were sent twice", sink, n, stored)
	}
}

package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// once fails the test for each event that a reader gets more than once: control events included, ids and all.
func once(t *testing.T, broker string, partitions ...[]received) {
	t.Helper()
	seen, repeats := map[string]bool{}, 0
	for _, partition := range partitions {
		for _, r := range partition {
			if r.id() == "" { // a tombstone
				continue
			}
			if seen[r.id()] {
				if repeats++; repeats <= 5 {
					t.Errorf("%s: %s %s came twice", broker, r.attributes["operation"], r.id())
				}
			}
			seen[r.id()] = true
		}
	}
	if repeats > 5 {
		t.Errorf("%s: %d repetitions", broker, repeats)
	}
}

// gapsInPlace fails the test if a gap event of a re-list is not between what came before the hole and what came after it.
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

// sentOnce fails the test if the bridge, in its life so far, had more events acknowledged than the broker has stored for it:
// JetStream acknowledges a repetition, too, and drops it.
func sentOnce(t *testing.T, b *bridge, sink string, stored int) {
	t.Helper()
	if n := int(b.metric("deltabridge_events_acknowledged_total", "sink="+sink)); n != stored {
		t.Errorf("sink %s: %d events were acknowledged, and %d are stored: some were sent twice", sink, n, stored)
	}
}

// withoutRepeats removes what was sent again after kills, and fails the test if that was due before the last within of a
// life: the first copy, by its time, has to be that close to the next kill.
func withoutRepeats(t *testing.T, partitions [][]received, kills []time.Time, within time.Duration) [][]received {
	t.Helper()
	repeats, oldest := 0, time.Duration(0)
	var firsts [][]received
	for _, partition := range partitions {
		seen := map[string]bool{}
		var first []received
		for _, r := range partition {
			if !seen[r.id()+string(r.data)] {
				seen[r.id()+string(r.data)] = true
				first = append(first, r)
				continue
			}
			repeats++
			age, ok := beforeAKill(t, firstOf(first, r), kills)
			if oldest = max(oldest, age); !ok || age > within {
				t.Errorf("%s was sent again, and had been sent %s before a kill", r.id(), age)
			}
		}
		firsts = append(firsts, first)
	}
	t.Logf("%d events came twice after %d kills, the oldest from %s before one", repeats, len(kills), oldest.Round(time.Millisecond))
	return firsts
}

func firstOf(events []received, of received) received {
	return events[slices.IndexFunc(events, func(r received) bool { return r.id() == of.id() && string(r.data) == string(of.data) })]
}

// beforeAKill is for how long the bridge lived on after it had made an event.
func beforeAKill(t *testing.T, r received, kills []time.Time) (age time.Duration, killed bool) {
	t.Helper()
	at := made(t, r)
	n := slices.IndexFunc(kills, at.Before)
	if n < 0 {
		return 0, false
	}
	return kills[n].Sub(at), true
}

// dropRepeats removes events that Kafka, which knows no ids, holds twice after a lost acknowledgement: the same id
// and the same content.
func dropRepeats(t *testing.T, partitions [][]received) [][]received {
	t.Helper()
	repeats := 0
	for n, partition := range partitions {
		seen := map[string]received{}
		var once []received
		for _, r := range partition {
			if before, ok := seen[r.id()]; ok && string(before.data) == string(r.data) {
				repeats++
				continue
			}
			seen[r.id()] = r
			once = append(once, r)
		}
		partitions[n] = once
	}
	t.Logf("%d repeats, each with the id of the first", repeats)
	return partitions
}

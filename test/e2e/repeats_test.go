package e2e

import (
	"encoding/json"
	"fmt"
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
			id := r.id()
			if id == "" { // a tombstone
				continue
			}
			if r.data == nil { // a tombstone with the id of its deletion
				id = "the tombstone of " + id
			}
			if seen[id] {
				if repeats++; repeats <= 5 {
					t.Errorf("%s: %s %s came twice", broker, r.attributes["operation"], id)
				}
			}
			seen[id] = true
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

// withoutRepeats removes what was sent again after kills, and fails the test if that was due before the last within of
// a life: the first copy, by its time, has to be that close to the next kill.
func withoutRepeats(t *testing.T, partitions [][]received, kills []time.Time, within time.Duration) [][]received {
	t.Helper()
	oldest := time.Duration(0)
	firsts := withoutExcused(t, partitions, func(partition, first, _ int) bool {
		age, ok := beforeAKill(t, partitions[partition][first], kills)
		oldest = max(oldest, age)
		return ok && age <= within
	})
	t.Logf("%d kills, the oldest repetition from %s before one", len(kills), oldest.Round(time.Millisecond))
	return firsts
}

// withoutExcused removes repetitions, which are copies of an event with its id and its content, and fails the test for
// each that is not excused. Places are those in the partition.
func withoutExcused(
	t *testing.T,
	partitions [][]received,
	excused func(partition, first, again int) bool,
) [][]received {
	t.Helper()
	repeats, wrong := 0, 0
	var firsts [][]received
	for n, partition := range partitions {
		seen := map[string]int{}
		var once []received
		for at, r := range partition {
			first, again := seen[r.id()+string(r.data)]
			if !again {
				seen[r.id()+string(r.data)] = at
				once = append(once, r)
				continue
			}
			if repeats++; !excused(n, first, at) {
				if wrong++; wrong <= 5 {
					t.Errorf(
						"%s, made at %s and at %d of partition %d, was sent again, and is at %d",
						r.id(),
						r.attributes["time"],
						first,
						n,
						at,
					)
				}
			}
		}
		firsts = append(firsts, once)
	}
	if wrong > 0 {
		t.Errorf("%d of %d repetitions are not excused", wrong, repeats)
	}
	t.Logf("%d repetitions, each with the id of the first", repeats)
	return firsts
}

// ends are how many records each partition has, once no more come.
func ends(t *testing.T, addr, topic string) (ends []int) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		var now []int
		for _, partition := range readKafka(t, addr, topic) {
			now = append(now, len(partition))
		}
		if before := ends; !slices.Equal(before, now) {
			ends = now
			return fmt.Errorf("%v records, after %v", now, before)
		}
		return nil
	})
	return ends
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

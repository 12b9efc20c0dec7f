package kafka

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestEpochUsedWithoutFence: a process had to raise the epoch without a fence. Its successor gets the same epoch from
// the coordinator, and must not use it, because the broker would take its batches for those of the process before.
func TestEpochUsedWithoutFence(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "unfenced", 1, nil)
	cfg := Config{Brokers: []string{broker.Addr()}, Topic: "unfenced"}
	var at stored
	first := process(t, cfg, &at)
	sendAll(t, first, change(event.Added, "a", 1))
	p := first.topics["unfenced"].partitions[0]
	first.fences.denied, p.unsettled = true, true
	sendAll(t, first, change(event.Added, "b", 2))
	sendAll(t, process(t, cfg, &at), change(event.Added, "c", 3))
	wantIDs(t, broker, "unfenced", "u-a.1", "u-b.2", "u-c.3")

	first = process(t, cfg, &at)
	sendAll(t, first, change(event.Added, "d", 4))
	p = first.topics["unfenced"].partitions[0]
	first.fences.denied, p.unsettled = true, true
	sendAll(t, first, change(event.Added, "e", 5))
	for range 3 {
		p.unsettle()
	}
	sendAll(t, first, change(event.Added, "f", 6))
	sendAll(t, process(t, cfg, &at), change(event.Added, "g", 7))
	wantIDs(t, broker, "unfenced", "u-a.1", "u-b.2", "u-c.3", "u-d.4", "u-e.5", "u-f.6", "u-g.7")
}

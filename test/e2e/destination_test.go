package e2e

import (
	"fmt"
	"testing"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// destination is a broker that a test starts when it wants to, with what a sink for it is configured with and what an
// independent client reads back from it.
type destination struct {
	broker string
	config string // the sink's own section of the configuration
	start  func()
	read   func() [][]received // the broker's ordered sequences
}

// awayJetStream is a JetStream server that is not started yet.
func awayJetStream(t *testing.T) *destination {
	t.Helper()
	js := newJetStream(t)
	return &destination{
		broker: "JetStream",
		config: fmt.Sprintf(`nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}`, js.url()),
		start:  js.start,
		read:   func() [][]received { return [][]received{js.read("E2E")} },
	}
}

// awayKafka is a Kafka broker that is stopped.
func awayKafka(t *testing.T) *destination {
	t.Helper()
	k := kafka.NewForTest(t)
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	return &destination{
		broker: "Kafka",
		config: fmt.Sprintf(`kafka: {brokers: [%q], topic: e2e, createTopics: {partitions: 3, replicationFactor: 1}}`, k.Addr()),
		start: func() {
			t.Helper()
			if err := k.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		read: func() [][]received { return readKafka(t, k.Addr(), "e2e") },
	}
}

// sink is the configuration of a sink for the destination.
func (d *destination) sink(name, buffer string) string {
	if buffer != "" {
		buffer = "\n    buffer: " + buffer
	}
	return fmt.Sprintf("  - name: %s%s\n    %s\n", name, buffer, d.config)
}

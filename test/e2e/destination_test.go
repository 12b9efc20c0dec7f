package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// destination is a broker that a test starts and stops when it wants to, with what a sink for it is configured with and
// what an independent client writes to it and reads back from it.
type destination struct {
	broker      string
	config      string // the sink's own section of the configuration
	start, stop func()
	takes       func(context.Context) error // one attempt to store a message where the sink's go
	read        func() [][]received         // the broker's ordered sequences
}

// awayJetStream is a JetStream server that is not started yet.
func awayJetStream(t *testing.T) *destination {
	t.Helper()
	js := newJetStream(t)
	return &destination{
		broker: "JetStream",
		config: fmt.Sprintf(`nats: {url: %q, stream: {name: E2E, create: true, subjects: ["k8s.>"]}}`, js.url()),
		start:  js.start,
		stop:   js.stop,
		takes:  js.takes,
		read:   func() [][]received { return [][]received{js.read("E2E")} },
	}
}

// hangingJetStream is a JetStream server that, where others stop, accepts connections and answers nothing.
func hangingJetStream(t *testing.T) *destination {
	t.Helper()
	js := startJetStream(t)
	proxy := sinktest.NewProxy(t, js.addr())
	proxy.Freeze()
	return &destination{
		broker: "JetStream",
		config: fmt.Sprintf(`nats: {url: "nats://%s", stream: {name: E2E, create: true, subjects: ["k8s.>"]}}`, proxy.Addr()),
		start:  proxy.Thaw,
		stop:   proxy.Freeze,
		read:   func() [][]received { return [][]received{js.read("E2E")} },
	}
}

// awayKafka is a Kafka broker that is stopped.
func awayKafka(t *testing.T) *destination {
	t.Helper()
	k := kafka.NewForTest(t)
	d := &destination{
		broker: "Kafka",
		config: fmt.Sprintf(
			`kafka: {brokers: [%q], topic: e2e, createTopics: {partitions: 3, replicationFactor: 1}}`,
			k.Addr(),
		),
		start: func() {
			t.Helper()
			if err := k.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		stop: func() {
			t.Helper()
			if err := k.Stop(); err != nil {
				t.Fatal(err)
			}
		},
		takes: func(ctx context.Context) error { return kafkaTakes(ctx, k.Addr(), "e2e") },
		read:  func() [][]received { return readKafka(t, k.Addr(), "e2e") },
	}
	d.stop()
	return d
}

// sink is the configuration of a sink for the destination.
func (d *destination) sink(name, buffer string) string {
	if buffer != "" {
		buffer = "\n    buffer: " + buffer
	}
	return fmt.Sprintf("  - name: %s%s\n    %s\n", name, buffer, d.config)
}

// stored is how many events the destination holds. What an independent client stored beside them is none.
func (d *destination) stored() (count int) {
	for _, sequence := range d.read() {
		for _, r := range sequence {
			if r.id() != "" {
				count++
			}
		}
	}
	return count
}

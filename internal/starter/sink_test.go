package starter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// The keys of a section depend on what the broker has. Keys that are given stay as they are.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		broker     Broker
		found      diagnose.Survey
		keys, note string
	}{
		{
			Broker{KindNATS, "nats://a"},
			diagnose.Survey{Servers: 2},
			"url: nats://a\nstream:\n  name: K8S\n  create: true\n", "stream K8S does not exist yet",
		},
		{
			Broker{KindNATS, "nats://a"},
			diagnose.Survey{Servers: 5},
			"url: nats://a\nstream:\n  name: K8S\n  create: true\n  replicas: 3\n", "stream K8S does not exist yet",
		},
		{
			Broker{KindNATS, "{stream: {create: false, replicas: 1}, url: 'nats://a'}"},
			diagnose.Survey{Servers: 3},
			"stream:\n  create: false\n  replicas: 1\n  name: K8S\nurl: nats://a\n", "stream K8S does not exist yet",
		},
		{
			Broker{KindNATS, "nats://a"},
			diagnose.Survey{Servers: 3, Exists: true, Detail: "3 replicas"},
			"url: nats://a\nstream:\n  name: K8S\n", "stream K8S exists: 3 replicas",
		},
		{
			Broker{KindKafka, "a:1,b:2"},
			diagnose.Survey{Servers: 2},
			"brokers:\n- a:1\n- b:2\ncreateTopics:\n  replicationFactor: 2\n", "the bridge creates the topics",
		},
		{
			Broker{KindKafka, "{brokers: ['a:1'], createTopics: {partitions: 6}}"},
			diagnose.Survey{Servers: 4, Exists: true, Detail: "2 topics"},
			"brokers:\n- a:1\ncreateTopics:\n  partitions: 6\n  replicationFactor: 3\n", "2 topics; the bridge creates others",
		},
	} {
		section, err := tt.broker.section()
		if err != nil {
			t.Fatal(err)
		}
		sink := config.Sink{Destinations: config.Destinations{NATS: &nats.Config{}, Kafka: &kafka.Config{}}}
		sink.NATS.Stream.Name = "K8S"
		note := tt.broker.complete(section, &sink, &tt.found)
		keys, err := yaml.Dump(plain(section), yaml.WithIndent(2))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.keys, string(keys)); diff != "" || note != tt.note {
			t.Errorf("%+v: note %q, keys (-want +got):\n%s", tt.broker, note, diff)
		}
	}
}

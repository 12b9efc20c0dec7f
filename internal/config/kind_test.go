package config

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

func TestLastOnly(t *testing.T) {
	for text, want := range map[string]bool{
		`nats: {url: "nats://a:4222"}`: false, `nats: {url: "nats://a:4222", bucket: STATE}`: true,
		`nats: {url: "nats://a:4222", stream: {lastPerSubject: true}}`: true,
		`kafka: {brokers: ["a:9092"]}`:                                 false, `kafka: {brokers: ["a:9092"], tombstones: true}`: true, `stdout: {}`: false,
	} {
		cfg, err := Parse("bridge.yaml", []byte("sinks: [{name: a, "+text+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Sinks[0].Destination().LastOnly(); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestKind(t *testing.T) {
	for want, d := range map[string]Destinations{"nats": {NATS: &nats.Config{}}, "kafka": {Kafka: &kafka.Config{}}, "stdout": {Stdout: &stdout.Config{}}, "": {}} {
		if got := d.Kind(); got != want || (d.Destination() == nil) != (want == "") {
			t.Errorf("%q, want %q: %v", got, want, d.Destination())
		}
	}
}

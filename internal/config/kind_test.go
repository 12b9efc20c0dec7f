package config

import (
	"testing"
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
		if got := cfg.Sinks[0].LastOnly(); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestKind(t *testing.T) {
	for want, s := range map[string]Sink{"nats": {NATS: &NATS{}}, "kafka": {Kafka: &Kafka{}}, "stdout": {Stdout: &Stdout{}}} {
		if got := s.Kind(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

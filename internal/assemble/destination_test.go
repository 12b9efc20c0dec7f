package assemble

import (
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// Each kind of destination can be made, and only records have keys.
func TestDestinationsOfEachKind(t *testing.T) {
	for _, test := range []struct {
		destination config.Destinations
		key, place  string
	}{
		{config.Destinations{NATS: &nats.Config{Servers: nats.Servers{URLs: []string{"nats://a"}}, Stream: nats.StreamConfig{Name: "S"}, Subject: "s.{uid}"}}, "", "s.{uid}"},
		{config.Destinations{NATS: &nats.Config{Servers: nats.Servers{URLs: []string{"nats://a"}}, Bucket: "B", Subject: "{uid}"}}, "", "$KV.B.{uid}"},
		{config.Destinations{Kafka: &kafka.Config{Brokers: []string{"a:9092"}, Topic: "t.{kind}", Key: "{uid}"}}, "{uid}", "t.{kind}"},
		{config.Destinations{Stdout: &stdout.Config{}}, "", ""},
	} {
		s := config.Sink{Name: "a", Destinations: test.destination}
		d, err := NewClient(&s)
		if err != nil {
			t.Errorf("%s: %v", s.Kind(), err)
			continue
		}
		if key := d.Key; key == nil != (test.key == "") || key != nil && key.String() != test.key {
			t.Errorf("%s: key %v, want %q", s.Kind(), key, test.key)
		}
		place := Places(&config.Config{Sinks: []config.Sink{s}})["a"]
		if place == nil != (test.place == "") || place != nil && place.String() != test.place {
			t.Errorf("%s: place %v, want %q", s.Kind(), place, test.place)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What can't be a configuration is no destination, and the error names the sink.
func TestWrongDestination(t *testing.T) {
	s := config.Sink{Name: "a", Destinations: config.Destinations{Kafka: &kafka.Config{}}}
	if _, err := NewDestination(&s, nil, nil); err == nil || err.Error()[:8] != "sink a: " {
		t.Error(err)
	}
}

package config

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

func TestKind(t *testing.T) {
	for want, d := range map[string]Destinations{"nats": {NATS: &nats.Config{}}, "kafka": {Kafka: &kafka.Config{}}, "stdout": {Stdout: &stdout.Config{}}, "": {}} {
		if got := d.Kind(); got != want || (d.Destination() == nil) != (want == "") {
			t.Errorf("%q, want %q: %v", got, want, d.Destination())
		}
	}
}

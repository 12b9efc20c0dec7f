package assemble

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// Each kind of destination can be made, and only records have keys.
func TestDestinationsOfEachKind(t *testing.T) {
	for _, test := range []struct {
		destination          config.Destinations
		key, place, describe string
	}{
		{config.Destinations{NATS: &nats.Config{Servers: nats.Servers{URLs: []string{"nats://a"}}, Stream: nats.StreamConfig{Name: "S"}, Subject: "s.{uid}"}}, "", "s.{uid}", "nats://a, stream S"},
		{config.Destinations{NATS: &nats.Config{Servers: nats.Servers{URLs: []string{"nats://a"}}, Bucket: "B", Subject: "{uid}"}}, "", "$KV.B.{uid}", "nats://a, bucket B"},
		{config.Destinations{Kafka: &kafka.Config{Brokers: []string{"a:9092"}, Topic: "t.{kind}", Key: "{uid}"}}, "{uid}", "t.{kind}", "a:9092, topic t.{kind}"},
		{config.Destinations{Stdout: &stdout.Config{}}, "", "", "standard output"},
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
		if got := s.Destination().Describe(); got != test.describe {
			t.Errorf("%s: %s, want %s", s.Kind(), got, test.describe)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// If a file has no certificate, there is no destination, and the error names the sink.
func TestWrongDestination(t *testing.T) {
	wrong := kafka.Config{Topic: "t", TLS: access.TLS{CAFile: "destination_test.go"}}
	s := config.Sink{Name: "a", Destinations: config.Destinations{Kafka: &wrong}}
	if _, err := NewDestination(&s, nil, nil); err == nil || err.Error()[:8] != "sink a: " {
		t.Error(err)
	}
}

// closing is a sink that records when it is closed.
type closing struct {
	sinks.Sink

	order *[]string
}

func (c closing) Close(context.Context) error {
	*c.order = append(*c.order, "sink")
	return errors.New("sink hangs")
}

// An object store can use the connection of the sink, so the sink is closed last; an error leaves nothing open.
func TestClose(t *testing.T) {
	var order []string
	d := Destination{Sink: closing{order: &order}, Closers: []func(context.Context) error{
		func(context.Context) error { order = append(order, "store"); return errors.New("store hangs") },
		func(context.Context) error { order = append(order, "letters"); return nil },
	}}
	err := d.Close(t.Context())
	if err == nil || err.Error() != "store hangs\nsink hangs" ||
		!slices.Equal(order, []string{"store", "letters", "sink"}) {
		t.Errorf("closed %q, %v", order, err)
	}
}

// A command is a client of the embedded server that the bridge runs: it starts none, which would take its port.
func TestNewClientOfAnEmbeddedServer(t *testing.T) {
	cfg := embeddedConfig(t)
	cfg.Sinks[0].NATS.Embedded.Listen = "127.0.0.1:1"
	d, err := NewClient(&cfg.Sinks[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.Connect(ctx); err == nil {
		t.Error("connected, although no bridge runs")
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cfg.Sinks[0].NATS.Embedded.StoreDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the server: %v", err)
	}
}

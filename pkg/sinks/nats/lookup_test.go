package nats_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// TestAnotherDomainRefuses: the leaf node has a stream with the same name and subjects, which refuses messages too. The
// sequence in its refusal is that of another object in the stream of the hub.
func TestAnotherDomainRefuses(t *testing.T) {
	hub, leaf := leafNode(t, limited(">"))
	hub.edit = func(cfg *nats.Config) {
		asBridge(t, cfg)
		cfg.URLs, cfg.Domain, cfg.Stream.LastPerSubject = []string{"nats://" + leaf.Addr()}, "hub", true
	}
	in := install(hub)
	ahead, behind := in.start(t), in.start(t)
	send(t, ahead, sinktest.Message("a", 9, 100), sinktest.Message("b", 1, 100))
	own := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}, MaxMsgsPerSubject: 1}
	js := leaf.js(t)
	if _, err := js.CreateStream(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "k8s.test.apps_example_com.things.default.b", nil); err != nil {
		t.Fatal(err)
	}
	// The refusal of either stream can be the first.
	for err := errors.New("not sent"); err != nil; {
		if err = try(t, behind, sinktest.Message("b", 2, 100))[0]; errors.Is(err, sinks.ErrStored) {
			break
		}
	}
	expectHeld(t, hub, "updated uid-a.1009", "updated uid-b.1002")
}

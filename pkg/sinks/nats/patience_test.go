package nats

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
)

// The sink gives up reading the stream back when no attempt succeeds for some time. The time without a connection does
// not count: after it, a single failure does not suffice.
func TestOutageIsNoFailureToRead(t *testing.T) {
	s := New(Config{
		Embedded: &embedded.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()}, Subject: defaultSubject(),
		Stream: StreamConfig{Name: "K8S", Create: true}, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	if err := s.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.progress.failing = time.Now().Add(-time.Hour)
	s.client.Lost <- natsgo.ErrDisconnected // and then it is connected again
	if err := s.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		errors.New("no answer"),
		jetstream.ErrConsumerNotFound, // a cluster that is electing leaders removes the reader's consumer
	} {
		if s.cannotRead(err) {
			t.Errorf("gives up after the first failure: %v", err)
		}
	}
}

// A consumer on a replica that is behind has no pending messages although the stream has.
func TestReplicaMayLackMessages(t *testing.T) {
	on := func(server string) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Cluster: &jetstream.ClusterInfo{Leader: server}}
	}
	stream := &jetstream.StreamInfo{
		State:   jetstream.StreamState{LastSeq: 100},
		Cluster: &jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{{Name: "b"}, {Name: "c", Lag: 3}}},
	}
	for _, c := range []struct {
		stream   *jetstream.StreamInfo
		consumer *jetstream.ConsumerInfo
		last     uint64
		want     bool
	}{
		{stream, on("a"), 100, false},
		{stream, on("b"), 100, false},
		{stream, on("c"), 100, true},
		{stream, on("c"), 98, true},
		{stream, on("c"), 97, false}, // what it lacks is newer
		{stream, on("d"), 100, false},
		{stream, &jetstream.ConsumerInfo{}, 100, false},
		{&jetstream.StreamInfo{}, on("c"), 100, false},
	} {
		if got := mayLack(c.stream, c.consumer, c.last); got != c.want {
			t.Errorf("%+v up to %d: %t", c.consumer.Cluster, c.last, got)
		}
	}
}

package nats

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

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
	if s.cannotRead(errors.New("no answer")) {
		t.Error("gives up after the first failure")
	}
}

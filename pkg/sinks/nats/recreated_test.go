package nats

import (
	"log/slog"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// The stream is created again between two messages of a sink that is never idle, and others have written to it before
// the sink does, so that its sequences are higher than before. The sink notices it after some time.
func TestCreatedAgainForOthersUnderLoad(t *testing.T) {
	for _, latest := range []bool{false, true} {
		s := New(Config{
			Embedded: &embedded.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()}, Subject: defaultSubject(),
			Stream: StreamConfig{Name: "K8S", Create: true, LastPerSubject: latest}, Logger: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(func() { _ = s.Close(t.Context()) })
		s.Resume(sinks.Resume{Writer: "i1/live", Store: func(sinks.Positions) error { return nil }})
		if err := s.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		send := func(version int) {
			t.Helper()
			results := make([]error, 1)
			if s.Send(t.Context(), []*event.Message{sinktest.Message("a", version, 100)}, results); results[0] != nil {
				t.Fatal(results[0])
			}
		}
		send(1)
		before, js := s.Destination(), s.client.JetStream()
		if err := js.DeleteStream(t.Context(), "K8S"); err != nil {
			t.Fatal(err)
		}
		natsserver.CreateStream(t, js, s.info.Config)
		for range 5 {
			if _, err := js.Publish(t.Context(), s.stream.EndSubject(s.info.Config.Subjects), nil); err != nil {
				t.Fatal(err)
			}
		}
		send(2)
		s.checked = s.checked.Add(-checkEvery) // as if so much time had passed
		send(3)
		if s.Destination() == before {
			t.Errorf("latest %v: the sink has not noticed the new stream", latest)
		}
	}
}

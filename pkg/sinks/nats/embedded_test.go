package nats_test

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

func embeddedSink(t *testing.T, listen, dir string) *nats.Sink {
	t.Helper()
	sink := nats.New(nats.Config{
		Embedded: &embedded.Config{Listen: listen, StoreDir: dir, MaxStore: 1 << 30},
		Stream:   nats.StreamConfig{Name: streamName, Create: true}, Subject: subject,
		AckTimeout: 30 * time.Second,
		Logger:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	return sink
}

// The embedded server serves others too, keeps its data, takes large objects, and ends with the sink.
func TestEmbeddedServer(t *testing.T) {
	listen, dir := natsserver.FreePort(t), t.TempDir()
	for run := range 2 {
		sink := embeddedSink(t, listen, dir)
		if err := sink.Connect(t.Context()); err != nil {
			t.Fatalf("Connect: %v", err)
		}
		send(t, sink, sinktest.Message("a", run+1, 3<<20))
		js := natsserver.Connect(t, "nats://"+listen)
		stream, err := js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatalf("reader: %v", err)
		}
		if n := stream.CachedInfo().State.Msgs; n != uint64(run+1) {
			t.Errorf("run %d: %d messages", run, n)
		}
		js.Conn().Close()
		closeSink(t, sink)
	}
	if conn, err := net.DialTimeout("tcp", listen, time.Second); err == nil {
		_ = conn.Close()
		t.Error("the server still listens")
	}
}

package replica

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// A leader and a standby share a checkpoint through JetStream. The server restarts, the stream is purged, and the
// standby takes over.
func TestNATS(t *testing.T) {
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30,
	}
	_, stopServer := natsserver.Start(t, opts)
	t.Cleanup(func() { stopServer() })
	connect := func() *natslog.Log {
		var cfg natslog.Config
		cfg.URLs, cfg.Timeout = []string{natsserver.ClientURL(opts)}, 2*time.Second
		cfg.Stream = natslog.StreamConfig{Name: "STATE", Create: true}
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
		return natslog.New(cfg)
	}
	patient := func(o *Options) { o.timing.patience, o.timing.check = 500*time.Millisecond, 100*time.Millisecond }
	one, standby := start(t, connect(), "", patient).lead(), start(t, connect(), "", patient)
	_, ended := one.run(one.Maintain)
	stopFollowing, _ := standby.run(standby.Follow)
	one.mustPut("a", 1)
	standby.caughtUp(one)

	stopServer()
	one.mustPut("a", 2)
	eventually(t, "the standby may be behind", func() bool { return standby.Behind() == unknown })
	_, stopServer = natsserver.Start(t, opts)
	eventually(t, "the log has the commit", func() bool { return !one.isDetached() })
	standby.caughtUp(one)
	standby.expect(one.content())

	log := connect()
	if err := log.Truncate(t.Context(), one.Store().Copy().Point().Position+1); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	expectLog(t, connect(), one.content())

	stopped(t, stopFollowing)
	want := one.content()
	standby.lead().expect(want)
	wantError(t, "Maintain", result(t, ended), statelog.ErrConflict)
	wantError(t, "commit", one.put("a", 3), statelog.ErrConflict)
	standby.mustPut("b", 3)
	expectLog(t, connect(), standby.content())
}

package embedded_test

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

func start(t *testing.T, cfg embedded.Config) (*embedded.Server, error) {
	t.Helper()
	cfg.MaxStore = 1 << 30
	return embedded.Start(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// A server says why it does not start, and what a check finds beforehand is the same. Its directory is free again when
// it has stopped.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	listen := natsserver.FreePort(t)
	first, err := start(t, embedded.Config{Listen: listen, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cfg  embedded.Config
		want string
	}{
		"port":         {embedded.Config{Listen: listen, StoreDir: t.TempDir()}, "the embedded server cannot listen on this address: listen tcp " + listen + ": bind: address already in use"},
		"store":        {embedded.Config{Listen: "127.0.0.1:0", StoreDir: dir}, "is in use by another process"},
		"address":      {embedded.Config{Listen: "nowhere", StoreDir: t.TempDir()}, "address nowhere: missing port"},
		"not a number": {embedded.Config{Listen: "127.0.0.1:nats", StoreDir: t.TempDir()}, "unknown port"},
		"directory":    {embedded.Config{Listen: "127.0.0.1:0", StoreDir: "/dev/null/x"}, "/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := start(t, test.cfg); err == nil {
				s.Stop()
				t.Fatal("it started")
			} else if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	first.Stop()
	again, err := start(t, embedded.Config{Listen: listen, StoreDir: dir})
	if err != nil {
		t.Fatalf("after the other has ended: %v", err)
	}
	again.Stop()
}

// A check says what would stand in the way of a server, and leaves nothing behind.
func TestCheck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := filepath.Join(t.TempDir(), "store")
	check := func(listen string) []string {
		t.Helper()
		return sinktest.Table(embedded.Check(embedded.Config{Listen: listen, StoreDir: dir}), l.Addr().String())
	}
	for range 2 { // the first leaves nothing that the second would find
		if diff := cmp.Diff([]string{"ok files " + dir, "ok connect 127.0.0.1:0"}, check("127.0.0.1:0")); diff != "" {
			t.Errorf("well (-want +got):\n%s", diff)
		}
	}
	if got := check(l.Addr().String())[1]; !strings.HasPrefix(
		got,
		"FAIL connect ADDR: ADDR: connect: the embedded server cannot listen on this address",
	) ||
		!strings.HasSuffix(got, "-> stop the other server there, or set another address in nats.embedded.listen") {
		t.Errorf("address in use: %s", got)
	}
	running, err := start(t, embedded.Config{Listen: "127.0.0.1:0", StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if got := check("127.0.0.1:0")[0]; !strings.Contains(got, "store "+dir+" is in use by another process") {
		t.Errorf("store in use: %s", got)
	}
	running.Stop()
	if got := check("127.0.0.1:0")[0]; got != "ok files "+dir {
		t.Errorf("store free again: %s", got)
	}
}

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/test/process"
	"github.com/deltabridge/deltabridge/test/scale"
)

// startJetStreamCluster starts a cluster of three servers, each of which is a process.
func startJetStreamCluster(t *testing.T) []*jetStream {
	t.Helper()
	var members []*jetStream
	var routes []*url.URL
	ports := freePorts(t, 6)
	for n := range 3 {
		js := newJetStream(t)
		js.port, js.route = ports[n], ports[n+3]
		routes = append(routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", itoa(js.route))})
		members = append(members, js)
	}
	for _, js := range members {
		js.routes = routes
		js.start()
	}
	api, closeConn := members[0].api()
	defer closeConn()
	eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), scale.Of(20*time.Second, 2*time.Second))
		defer cancel()
		_, err := api.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "FORMED", Replicas: len(members)})
		return err
	})
	return members
}

// start starts the server, and waits until it listens.
func (js *jetStream) start() {
	js.t.Helper()
	lines := slices.Concat(js.more, []string{
		"server_name: " + js.name(),
		fmt.Sprintf("listen: %q", js.addr()),
		fmt.Sprintf("http: \"127.0.0.1:%d\"", js.monitor),
		fmt.Sprintf("jetstream {store_dir: %q}", filepath.Join(js.dir, "store")),
	})
	if js.routes != nil {
		routes := strings.ReplaceAll(strings.Trim(fmt.Sprintf("%q", js.routes), "[]"), " ", ", ")
		lines = append(lines, fmt.Sprintf("cluster {name: e2e, listen: \"127.0.0.1:%d\", routes: [%s]}", js.route, routes))
	}
	config := filepath.Join(js.dir, "nats.conf")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		js.t.Fatal(err)
	}
	js.process = exec.Command(natsBinary, "--config", config, "--log", filepath.Join(js.dir, "nats.log"))
	// Less work for the garbage collector; and what a test sets for the bridge is not for the server.
	js.process.Env = append(os.Environ(), "GOGC=400", "GODEBUG=")
	js.process.Stderr = js.t.Output()
	js.process.SysProcAttr = process.Attr()
	if err := js.process.Start(); err != nil {
		js.t.Fatal(err)
	}
	eventually(js.t, 20*time.Second, func() error {
		conn, err := net.DialTimeout("tcp", js.addr(), time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// stop ends the server in order.
func (js *jetStream) stop() { js.end(syscall.SIGTERM) }

// name is the name of the server.
func (js *jetStream) name() string { return "e2e-" + itoa(js.port) }

// kill ends the server as a failure of its node would.
func (js *jetStream) kill() { js.end(syscall.SIGKILL) }

// end sends a signal to the server if it runs, and waits until it has ended.
func (js *jetStream) end(s syscall.Signal) {
	if js.process != nil {
		_ = js.process.Process.Signal(s)
		_ = js.process.Wait() // the exit code says how it was ended
		js.process = nil
	}
}

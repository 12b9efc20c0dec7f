package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// natsVariable has the name of a configuration file if this process is a member of a cluster, not a test.
const natsVariable = "DELTABRIDGE_TEST_NATS_MEMBER"

// serveNATS runs a member of a cluster until a signal ends the process. It returns why it can't.
func serveNATS(file string) error {
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return err
	}
	srv.Start()
	srv.WaitForShutdown()
	return nil
}

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
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := api.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "FORMED", Replicas: len(members)})
		return err
	})
	return members
}

// startProcess starts a member of a cluster.
func (js *jetStream) startProcess() {
	js.t.Helper()
	config := filepath.Join(js.dir, "nats.conf")
	text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream {store_dir: %q}\n"+
		"cluster {name: e2e, listen: \"127.0.0.1:%d\", routes: [%s]}\n", js.name(), js.addr(), filepath.Join(js.dir, "store"),
		js.route, strings.ReplaceAll(strings.Trim(fmt.Sprintf("%q", js.routes), "[]"), " ", ", "))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		js.t.Fatal(err)
	}
	js.process = exec.Command(os.Args[0])
	js.process.Env = append(os.Environ(), natsVariable+"="+config, "GOGC=400") // less work for the garbage collector
	js.process.Stderr = js.t.Output()
	js.process.SysProcAttr = childAttr()
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

// name is that of a member of a cluster.
func (js *jetStream) name() string { return "e2e-" + itoa(js.port) }

// kill ends a member of a cluster as a failure of its node would.
func (js *jetStream) kill() { js.end(syscall.SIGKILL) }

// end sends a signal to a member of a cluster that runs, and waits until it has ended.
func (js *jetStream) end(s syscall.Signal) {
	if js.process != nil {
		_ = js.process.Process.Signal(s)
		_ = js.process.Wait() // the exit code says how it was ended
		js.process = nil
	}
}

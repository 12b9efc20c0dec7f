package natsserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/test/freeport"
	"github.com/deltabridge/deltabridge/test/poll"
)

// variable names an environment variable with the path of a nats-server program: test/matrix. If it is set, a server is
// this program, and not the nats-server of go.mod in the test process.
const variable = "DELTABRIDGE_TEST_NATS_SERVER"

// patience is how long anything may take on a machine that does much else.
const patience = 2 * time.Minute

// Start starts a server, and returns a function that stops it. srv is nil if the
// server is a program of its own. If the port of opts is random, Start sets it to one that the
// server finds free again when it is restarted: see freeport.Reserve.
func Start(t testing.TB, opts *server.Options) (srv *server.Server, stop func()) {
	t.Helper()
	if opts.Port == server.RANDOM_PORT {
		_, port, _ := net.SplitHostPort(FreePort(t))
		opts.Port, _ = strconv.Atoi(port)
	}
	if program := os.Getenv(variable); program != "" {
		return nil, startProgram(t, program, opts)
	}
	patient := opts.Clone()
	patient.AuthTimeout, patient.TLSTimeout = patience.Seconds(), patience.Seconds()
	srv, err := server.NewServer(patient)
	if err != nil {
		t.Fatalf("nats-server: %v", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("nats-server does not get ready")
	}
	return srv, func() { srv.Shutdown(); srv.WaitForShutdown() }
}

// FreePort returns a loopback address that is reserved for this process: see freeport.Reserve.
func FreePort(t testing.TB) string {
	t.Helper()
	found, err := freeport.Reserve(1)
	if err != nil {
		t.Fatal(err)
	}
	return freeport.Address(found[0])
}

// Connect returns a client of a server. Its connection ends with the test.
func Connect(t testing.TB, url string, options ...natsgo.Option) jetstream.JetStream {
	t.Helper()
	conn, err := natsgo.Connect(url, append(options, natsgo.Timeout(patience))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// CreateStream creates a stream. If one of this name was deleted, the server refuses to create another one until it has
// deleted its files.
func CreateStream(t testing.TB, js jetstream.JetStream, config jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	var stream jetstream.Stream
	Repeat(t, "create the stream "+config.Name, func(ctx context.Context) (err error) {
		stream, err = js.CreateStream(ctx, config)
		return err
	})
	return stream
}

// Stream returns a stream as it is now.
func Stream(t testing.TB, js jetstream.JetStream, name string) (stream jetstream.Stream) {
	t.Helper()
	Repeat(t, "look up the stream "+name, func(ctx context.Context) (err error) {
		stream, err = js.Stream(ctx, name)
		return err
	})
	return stream
}

// DeleteStream deletes a stream.
func DeleteStream(t testing.TB, js jetstream.JetStream, name string) {
	t.Helper()
	Repeat(t, "delete the stream "+name, func(ctx context.Context) error {
		if err := js.DeleteStream(ctx, name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil
	})
}

// Repeat calls do until it succeeds. The servers of a cluster do not answer a request if they elect a leader.
func Repeat(t testing.TB, what string, do func(context.Context) error) {
	t.Helper()
	err := poll.Until(t.Context(), 20*time.Millisecond, patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return do(ctx)
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// configOf returns a configuration file for the options that startProgram supports.
func configOf(opts *server.Options) (string, error) {
	config := map[string]any{
		"server_name": cmp.Or(opts.ServerName, "test"), "host": opts.Host, "port": opts.Port,
		"max_payload": cmp.Or(opts.MaxPayload, server.MAX_PAYLOAD_SIZE),
		"jetstream": map[string]any{
			"store_dir": opts.StoreDir, "max_file_store": opts.JetStreamMaxStore, "max_memory_store": opts.JetStreamMaxMemory,
		},
	}
	if c := opts.Cluster; c.Name != "" {
		config["cluster"] = map[string]any{
			"name": c.Name, "host": c.Host, "port": c.Port, "cluster_advertise": c.Advertise,
			"routes": strings.Fields(strings.Trim(fmt.Sprint(opts.Routes), "[]")),
		}
	}
	var users []map[string]any
	for _, u := range opts.Users {
		user := map[string]any{"user": u.Username, "password": u.Password}
		if p := u.Permissions; p != nil {
			user["permissions"] = map[string]any{"publish": p.Publish.Allow, "subscribe": p.Subscribe.Allow}
		}
		users = append(users, user)
	}
	if len(users) > 0 {
		config["authorization"], config["no_auth_user"] = map[string]any{"users": users}, opts.NoAuthUser
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // nats-server does not know \u003e
	err := encoder.Encode(config)
	return text.String(), err
}

// startProgram starts a nats-server program and waits until it accepts connections. A test that requires options other
// than those of configOf fails.
func startProgram(t testing.TB, program string, opts *server.Options) (stop func()) {
	t.Helper()
	supported := &server.Options{
		Host: opts.Host, Port: opts.Port, MaxPayload: opts.MaxPayload, JetStream: true, StoreDir: opts.StoreDir,
		JetStreamMaxStore: opts.JetStreamMaxStore, JetStreamMaxMemory: opts.JetStreamMaxMemory, NoLog: true, NoSigs: true,
		ServerName: opts.ServerName, Cluster: opts.Cluster, Routes: opts.Routes, Users: opts.Users,
		NoAuthUser: opts.NoAuthUser,
	}
	if !reflect.DeepEqual(supported, opts) {
		t.Fatalf("with %s, the server cannot have the options %+v", variable, opts)
	}
	text, err := configOf(opts)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// The shell also stops the server if the test process ends without calling stop, because its standard input then ends.
	cmd := exec.Command("sh", "-c", `"$0" -c "$1" & read -r line; kill $!; wait $!`, program, config)
	cmd.Stderr = t.Output() // nats-server's log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = stdin.Close()
		_ = cmd.Wait() // the exit code of a server that was killed
	}
	err = poll.Until(t.Context(), 20*time.Millisecond, patience, func() error {
		conn, err := natsgo.Connect(ClientURL(opts), natsgo.NoReconnect())
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		stop()
		t.Fatalf("%s does not accept connections: %v", program, err)
	}
	return stop
}

// ClientURL returns the URL of a server with a port that is set.
func ClientURL(opts *server.Options) string {
	return "nats://" + net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port))
}

package natsconn

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// newClient is a client of servers, closed at the end of the test.
func newClient(t *testing.T, auth Auth, addrs ...string) *Client {
	t.Helper()
	c := &Client{Prober: new(reach.Prober), Lost: make(chan error, 1)}
	c.Access = Access{Auth: auth, Timeout: 5 * time.Second}
	for _, addr := range addrs {
		c.URLs = append(c.URLs, "nats://"+addr)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func mustConnect(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if err = c.Connect(ctx); err == nil {
			return
		}
	}
	t.Fatalf("Connect: %v", err)
}

// A connection that broke is reported once, takes nothing while it is away, and is the same one when it is back.
func TestClientReconnects(t *testing.T) {
	srv, addr := startServer(t, nil)
	c := newClient(t, Auth{}, addr)
	if c.Conn() != nil {
		t.Error("a connection before the first Connect")
	}
	mustConnect(t, c)
	conn := c.Conn()
	before := conn.Stats().Reconnects // nats.go counts the first connection, which it makes in the background
	mustConnect(t, c)
	if c.Conn() != conn {
		t.Error("connected a second time")
	}
	stopServer(srv)
	if err := <-c.Lost; err == nil {
		t.Error("lost without an error")
	}
	if err := conn.Publish("a", []byte("x")); !errors.Is(err, natsgo.ErrReconnectBufExceeded) {
		t.Errorf("published while disconnected: %v", err)
	}
	back := time.AfterFunc(300*time.Millisecond, func() { startAt(t, addr, nil) })
	defer back.Stop()
	mustConnect(t, c)
	if c.Conn() != conn || conn.Statistics.Reconnects != before+1 {
		t.Errorf("another connection, or %d reconnections after %d", conn.Statistics.Reconnects, before)
	}
	if err := conn.FlushTimeout(time.Minute); err != nil {
		t.Errorf("after the return: %v", err)
	}
}

// While no server is there, Connect soon says why, at the first time as at any later one.
func TestClientSaysWhy(t *testing.T) {
	srv, addr := startServer(t, nil)
	c := newClient(t, Auth{}, addr)
	mustConnect(t, c)
	stopServer(srv)
	if err := <-c.Lost; err == nil {
		t.Error("no error for the lost connection")
	}
	fresh := newClient(t, Auth{}, addr)
	for name, client := range map[string]*Client{"lost": c, "never connected": fresh} {
		start := time.Now()
		err := client.Connect(t.Context())
		e, ok := errors.AsType[*sinks.ConnectError](err)
		if !ok || e.Step != sinks.StepConnect || e.Address != addr || e.Key != "nats.url" || sinks.IsRejected(err) ||
			!strings.HasPrefix(err.Error(), "nats server "+addr+": connect: nothing listens there") {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	startAt(t, addr, nil)
	mustConnect(t, fresh)
}

// Connect ends with its context, whether the client was connected before or not, and a later Connect is not impaired.
func TestCanceledConnect(t *testing.T) {
	srv, addr := startServer(t, nil)
	c := newClient(t, Auth{}, addr)
	mustConnect(t, c)
	stopServer(srv)
	if err := <-c.Lost; err == nil {
		t.Error("no error for the lost connection")
	}
	silent := newClient(t, Auth{}, says(t, ""))
	for name, client := range map[string]*Client{"lost": c, "silent": silent} {
		client.Timeout = 5 * time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		if err := client.Connect(ctx); !errors.Is(err, context.Canceled) || time.Since(start) > time.Minute {
			t.Errorf("%s: %v after %v", name, err, time.Since(start))
		}
		stop.Stop()
		cancel()
	}
	startAt(t, addr, nil)
	mustConnect(t, c)
}

// When its server goes, the client takes another of the URLs; a dead one among them costs little.
func TestClientTakesAnotherServer(t *testing.T) {
	one, first := startServer(t, nil)
	_, second := startServer(t, nil)
	c := newClient(t, Auth{}, first)
	mustConnect(t, c)
	c.Close(t.Context())
	c.URLs = []string{"nats://127.0.0.1:1", "nats://" + first}
	mustConnect(t, c) // a new connection in place of the closed one
	if got := c.Conn().ConnectedAddr(); got != first {
		t.Fatalf("connected to %s", got)
	}
	c.Close(t.Context())
	c.URLs = append(c.URLs, "nats://"+second)
	stopServer(one)
	mustConnect(t, c)
	if got := c.Conn().ConnectedAddr(); got != second {
		t.Errorf("connected to %s, not to %s", got, second)
	}
}

// Secrets are read again for every connection: with the old one, the error names its file; with the new one, the
// client is connected again. A rotated nkey needs a new connection of nats.go, and gets one.
func TestRotatedSecrets(t *testing.T) {
	newUser := func() (public string, seed []byte) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, _ = pair.PublicKey()
		seed, _ = pair.Seed()
		return public, seed
	}
	oldKey, oldSeed := newUser()
	newKey, newSeed := newUser()
	for _, c := range []struct {
		name     string
		before   func(*server.Options)
		after    func(*server.Options)
		old, new []byte
		auth     func(file string) Auth
		key      string
	}{
		{
			"token", func(o *server.Options) { o.Authorization = "one" }, func(o *server.Options) { o.Authorization = "two" },
			[]byte("one\n"), []byte("two\n"), func(file string) Auth { return Auth{TokenFile: file} }, "nats.tokenFile",
		},
		{
			"password", func(o *server.Options) { o.Username, o.Password = "bridge", "one" },
			func(o *server.Options) { o.Username, o.Password = "bridge", "two" },
			[]byte("one"), []byte("two"), func(file string) Auth { return Auth{User: "bridge", PasswordFile: file} },
			"nats.passwordFile",
		},
		{
			"nkey", func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: oldKey}} },
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: newKey}} },
			oldSeed, newSeed, func(file string) Auth { return Auth{NkeyFile: file} }, "nats.nkeyFile",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := writeFile(t, "secret", c.old)
			srv, addr := startServer(t, c.before)
			client := newClient(t, c.auth(file), addr)
			client.Timeout = 400 * time.Millisecond
			mustConnect(t, client)
			stopServer(srv)
			if err := <-client.Lost; err == nil {
				t.Error("no error for the lost connection")
			}
			startAt(t, addr, c.after)
			for try := 1; ; try++ { // on a slow machine, an attempt takes longer than the timeout
				err := client.Connect(t.Context())
				e, ok := errors.AsType[*sinks.ConnectError](err)
				if ok && e.Key == c.key && e.Step == sinks.StepAuthenticate && sinks.IsRejected(err) {
					break
				}
				if try == 20 {
					t.Fatalf("with the old file: %v", err)
				}
			}
			if err := os.WriteFile(file, c.new, 0o600); err != nil {
				t.Fatal(err)
			}
			mustConnect(t, client)
		})
	}
}

// Close does not wait for a server that hangs. An operation whose context ends breaks the connection, which comes back.
func TestEndWithAndClose(t *testing.T) {
	_, addr := startServer(t, nil)
	proxy := sinktest.NewProxy(t, addr)
	c := newClient(t, Auth{}, proxy.Addr())
	c.Close(t.Context()) // nothing to close yet
	mustConnect(t, c)
	ended, end := context.WithCancel(t.Context())
	done := c.EndWith(ended)
	end()
	if err := <-c.Lost; err == nil {
		t.Error("interrupted without an error")
	}
	done()
	mustConnect(t, c)
	proxy.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	c.Close(ctx)
	if took := time.Since(start); took > time.Minute || !c.Conn().IsClosed() {
		t.Errorf("closed %v after %v", c.Conn().IsClosed(), took)
	}
	proxy.Thaw()
	mustConnect(t, c)
}

// An operation whose context has ended does not wait for a server that hangs, although nats.go reconnects
// meanwhile.
func TestAnEndedOperationDoesNotWait(t *testing.T) {
	_, addr := startServer(t, nil)
	proxy := sinktest.NewProxy(t, addr)
	c := newClient(t, Auth{}, proxy.Addr())
	mustConnect(t, c)
	proxy.Freeze()
	ended, end := context.WithCancel(t.Context())
	end()
	done := c.EndWith(ended)
	if err := <-c.Lost; err == nil {
		t.Error("the connection broke without an error")
	}
	for try := 1; ; try++ {
		<-time.After(reach.Interval) // nats.go has dialed again
		start := time.Now()
		c.Conn().IsConnected()
		took := time.Since(start)
		if took <= connectTimeout/2 {
			break
		}
		if try == 3 { // or the machine stood still
			t.Fatalf("waited %v for the connection", took)
		}
	}
	done()
	proxy.Thaw()
	mustConnect(t, c)
}

// Requests and publications get the error if the server denies them.
func TestClientDenials(t *testing.T) {
	_, addr := startServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"k8s.>"}},
		}}}
	})
	c := newClient(t, Auth{User: "bridge", PasswordFile: writeFile(t, "password", []byte("secret"))}, addr)
	c.Forbidden = make(chan string, 1)
	mustConnect(t, c)
	start := time.Now()
	err := c.Ask(t.Context(), func(ctx context.Context) error {
		_, err := c.Conn().RequestWithContext(ctx, "k8s.a", nil)
		return err
	})
	if !errors.Is(err, natsgo.ErrPermissionViolation) || time.Since(start) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	if subject := <-c.Forbidden; subject != "k8s.a" {
		t.Errorf("forbidden subject %q", subject)
	}
	if e := c.Denied(
		"not published",
		err,
		"k8s.*",
	); !strings.Contains(
		e.Error(),
		`allow user "bridge" to publish to k8s.*`,
	) {
		t.Error(e)
	}
}

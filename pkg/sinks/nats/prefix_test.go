package nats_test

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// limited is a server option: the user "bridge" may publish to these subjects, and subscribe only to inboxes with a
// prefix of its own.
func limited(publish ...string) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: publish},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_bridge.>"}},
			}},
			{Username: "admin", Password: "admin"},
		}
		o.NoAuthUser = "admin"
	}
}

// asBridge lets a sink connect as the user of [limited].
func asBridge(t *testing.T, c *nats.Config) {
	c.Auth = natsconn.Auth{User: "bridge", PasswordFile: writeFile(t, "password", []byte("secret"))}
	c.InboxPrefix = "_INBOX_bridge"
}

// leafNode starts a hub and a leaf node, each with a JetStream domain. The hub's sinks connect to the leaf node.
func leafNode(t *testing.T, edit func(*server.Options)) (hub, leaf *broker) {
	t.Helper()
	leafs := natsserver.FreePort(t)
	_, port, _ := net.SplitHostPort(leafs)
	hub = secured(t, func(o *server.Options) {
		o.JetStreamDomain, o.MaxPayload = "hub", 4<<20
		o.LeafNode.Host = "127.0.0.1"
		_, _ = fmt.Sscan(port, &o.LeafNode.Port)
	})
	leaf = secured(t, func(o *server.Options) {
		o.JetStreamDomain, o.MaxPayload = "leaf", 4<<20
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats-leaf", Host: leafs}}}}
		edit(o)
	})
	js, err := jetstream.NewWithDomain(leaf.js(t).Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	// The leaf node is connected before it learns what the hub has subscribed to.
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := js.AccountInfo(t.Context()); err == nil {
			return hub, leaf
		} else if time.Now().After(deadline) {
			t.Fatalf("over the leaf node, the hub's JetStream does not answer: %v", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestDomain: over a leaf node, everything goes to the streams of the hub, with the permissions that the documentation
// names and no others.
func TestDomain(t *testing.T) {
	const register = "KV_deltabridge-clusters"
	api := func(names ...string) (subjects []string) {
		for _, name := range names {
			subjects = append(subjects, "$JS.hub.API."+name)
		}
		return subjects
	}
	common := api("$KV.deltabridge-clusters.>", "STREAM.INFO."+register, "STREAM.CREATE."+register,
		"DIRECT.GET."+register+".>", "INFO")
	for _, c := range []struct {
		name, bucket string
		publish      []string
	}{
		{"stream", "", append(api("STREAM.INFO.K8S", "STREAM.CREATE.K8S"), "k8s.>")},
		{"bucket", "STATE", api("STREAM.INFO.KV_STATE", "STREAM.CREATE.KV_STATE", "$KV.STATE.>")},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub, leaf := leafNode(t, limited(append(common, c.publish...)...))
			hub.edit = func(cfg *nats.Config) {
				asBridge(t, cfg)
				cfg.URLs, cfg.Domain, cfg.Bucket = []string{"nats://" + leaf.Addr()}, "hub", c.bucket
				if c.bucket != "" {
					cfg.Stream, cfg.Subject = nats.StreamConfig{Create: true}, "{group}.{resource}.{namespace}.{name}"
				}
			}
			sink := connect(t, hub)
			send(t, sink, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
			if err := sinks.Claim(t.Context(), sink, "s", sinks.Owner{Cluster: "prod", UID: "u"}); err != nil {
				t.Error(err)
			}
			for _, f := range sink.Check(t.Context()) {
				if f.Err != nil {
					t.Errorf("the check fails: %s %s: %v", f.Step, f.Target, f.Err)
				}
			}
			stream := "K8S"
			if c.bucket != "" {
				stream = "KV_STATE"
			}
			names := map[string]uint64{}
			for info := range hub.js(t).ListStreams(t.Context()).Info() {
				names[info.Config.Name] = info.State.Msgs
			}
			if diff := cmp.Diff(map[string]uint64{stream: 2, register: 1}, names); diff != "" {
				t.Errorf("messages of the hub's streams (-want +got):\n%s", diff)
			}
			for name := range leaf.js(t).StreamNames(t.Context()).Name() {
				t.Errorf("the leaf node has the stream %s", name)
			}
		})
	}
}

// TestDomainWithoutLimits: what a sink seldom needs works in a domain too: object stores, reading back, and denials of
// single subjects of a bucket.
func TestDomainWithoutLimits(t *testing.T) {
	hub, leaf := leafNode(t, func(o *server.Options) {
		limited(">")(o)
		o.Users[0].Permissions.Publish.Deny = []string{"$JS.hub.API.$KV.STATE.*.*.*.b"}
	})
	hub.edit = func(cfg *nats.Config) {
		asBridge(t, cfg)
		cfg.URLs, cfg.Domain = []string{"nats://" + leaf.Addr()}, "hub"
	}
	sink := connect(t, hub)
	send(t, sink, sinktest.Message("a", 1, 100))
	if ids := hub.read(t, diagnose.ReadOptions{}).all(t); len(ids) != 1 {
		t.Errorf("read: %q", ids)
	}
	store := sink.PayloadStore(nats.PayloadConfig{Bucket: "claims", Create: true})
	m := sinktest.Message("a", 2, 300<<10)
	ref, _, err := store.Store(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := hub.js(t).ObjectStore(t.Context(), "claims")
	if err != nil {
		t.Fatal(err)
	}
	data, err := objects.GetBytes(t.Context(), strings.TrimPrefix(ref, "nats-object://claims/"))
	if err != nil || !cmp.Equal(data, m.Data) {
		t.Errorf("%d bytes of %d, %v", len(data), len(m.Data), err)
	}

	lost := newSink(t, hub, func(cfg *nats.Config) { cfg.Domain = "hup" })
	if err := lost.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "or correct nats.domain") {
		t.Errorf("another domain: %v", err)
	}

	bucket := newSink(t, hub, func(cfg *nats.Config) {
		cfg.Bucket, cfg.Stream = "STATE", nats.StreamConfig{Create: true}
		cfg.Subject = "{group}.{resource}.{namespace}.{name}"
	})
	results := try(t, bucket, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	if results[0] != nil || results[1] == nil || !strings.Contains(results[1].Error(), "$JS.hub.API.$KV.STATE.") {
		t.Errorf("%v", results)
	}
}

// TestInboxPrefix: a user that may subscribe only to some inboxes can use these, and is told so otherwise. The server
// knows the connection by its name.
func TestInboxPrefix(t *testing.T) {
	b := secured(t, limited("k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S"))
	b.edit = func(c *nats.Config) { asBridge(t, c); c.ConnectionName = "deltabridge-prod-live" }
	sink := connect(t, b)
	send(t, sink, sinktest.Message("a", 1, 100))
	if failed := sinktest.Failures(sink.Check(t.Context())); len(failed) > 0 {
		t.Errorf("the check fails: %q", failed)
	}
	connections, err := b.srv.Connz(nil)
	if err != nil || !slices.ContainsFunc(connections.Conns, func(c *server.ConnInfo) bool {
		return c.Name == "deltabridge-prod-live"
	}) {
		t.Errorf("connections %+v, %v", connections, err)
	}

	b.edit = func(c *nats.Config) { asBridge(t, c); c.InboxPrefix = "" }
	const remedy = `on the server, allow user "bridge" to subscribe to _INBOX.>, or set nats.inboxPrefix`
	if err := tryConnect(t, b); err == nil || !strings.HasSuffix(err.Error(), "; "+remedy) || !sinks.IsRejected(err) {
		t.Errorf("%v, want %s", err, remedy)
	}
	found := sinktest.Table(newSink(t, b, func(*nats.Config) {}).Check(t.Context()), b.Addr())
	last := found[len(found)-1]
	if !strings.HasPrefix(last, "FAIL authorize stream K8S") || !strings.Contains(last, remedy) {
		t.Errorf("the check does not find it:\n%s", strings.Join(found, "\n"))
	}
}

// TestAPIPrefix: the stream belongs to another account, which exports the API of JetStream and the subjects.
func TestAPIPrefix(t *testing.T) {
	t.Run("one response", func(t *testing.T) { testAPIPrefix(t, "singleton", ">", "10", 1) })
	t.Run("any number of responses", func(t *testing.T) { testAPIPrefix(t, "stream", ">", "11", 0) })
	t.Run("no consumers", func(t *testing.T) { testAPIPrefix(t, "stream", "STREAM.>", "00", 1) })
}

// configured is a server option: accounts as a configuration file has them.
func configured(t *testing.T, accounts string) func(*server.Options) {
	return func(o *server.Options) {
		parsed, err := server.ProcessConfigFile(writeFile(t, "nats.conf", []byte(accounts)))
		if err != nil {
			t.Fatal(err)
		}
		o.Accounts, o.Users, o.NoAuthUser = parsed.Accounts, parsed.Users, parsed.NoAuthUser
	}
}

// testAPIPrefix also tests what a restart knows of the stream, for an export with the given type of response, and an
// import of a part of the API.
func testAPIPrefix(t *testing.T, response, api, stored string, wantWarnings int) {
	const format = `
no_auth_user: admin
accounts {
  STREAMS {
    jetstream: enabled
    users: [{user: admin, password: admin}]
    exports: [{service: "$JS.API.>", response_type: %[1]s}, {service: "k8s.>"}]
  }
  APP {
    users: [{user: bridge, password: secret}]
    imports: [
      {service: {account: STREAMS, subject: "$JS.API.%[2]s"}, to: "JS.streams.API.%[2]s"}
      {service: {account: STREAMS, subject: "k8s.>"}}
    ]
  }
}`
	b := secured(t, configured(t, fmt.Sprintf(format, response, api)))
	var logged warnings
	b.edit = func(c *nats.Config) {
		asBridge(t, c)
		c.APIPrefix, c.AckTimeout, c.Logger = "JS.streams.API", 300*time.Millisecond, logged.logger()
	}
	in := install(b)
	send(t, in.start(t), sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	expectStored(t, in.start(t), stored, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100))
	if n := logged.count("only recognized within the duplicate window"); n != wantWarnings {
		t.Errorf("%d warnings: %s", n, logged.text.String())
	}
	if n := len(b.messages(t)); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestAnotherDomainAnswers: the leaf node has a stream with the same name and subjects. Its acknowledgements do not count,
// because the stream of the hub may lack the message.
func TestAnotherDomainAnswers(t *testing.T) {
	hub, leaf := leafNode(t, limited(">"))
	hub.edit = func(cfg *nats.Config) {
		asBridge(t, cfg)
		cfg.URLs, cfg.Domain, cfg.AckTimeout = []string{"nats://" + leaf.Addr()}, "hub", time.Second
	}
	sink := connect(t, hub)
	send(t, sink, sinktest.Message("a", 1, 100))
	own := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}}
	if _, err := leaf.js(t).CreateStream(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	send(t, sink, sinktest.Message("a", 2, 100))
	if n := len(hub.messages(t)); n != 2 {
		t.Errorf("the hub has %d messages", n)
	}
	hub.Stop(t)
	results := make([]error, 1)
	sink.Send(t.Context(), []*event.Message{sinktest.Message("a", 3, 100)}, results)
	if !sinks.IsMaybeWritten(results[0]) {
		t.Errorf("without the hub: %v", results[0])
	}
}

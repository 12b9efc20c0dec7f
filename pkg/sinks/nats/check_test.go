package nats_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

const (
	warnReplica = "warn stream stream K8S: it has one replica: if the server loses its data, acknowledged messages are lost -> use 3 replicas, in a cluster of at least 3 servers (num_replicas)"
	warnBare    = `warn authenticate ADDR: user "bridge": the secret is sent without encryption -> enable TLS on the server, or use an nkey or credentials, which are never sent`
	mayPublish  = "ok authorize subject k8s._._._._._"
	warnMemory  = "warn stream stream K8S: its storage is memory: a restart of the server removes its messages -> use storage: file"
)

// TestCheckStream: the check compares the stream with the guarantees. It creates nothing.
func TestCheckStream(t *testing.T) {
	b := secured(t, func(o *server.Options) { o.MaxPayload = 4 << 20 })
	js := b.js(t)
	reached := []string{"ok connect ADDR", "ok protocol ADDR"}
	fit := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}, Storage: jetstream.MemoryStorage}
	with := func(edit func(*jetstream.StreamConfig)) *jetstream.StreamConfig {
		c := fit
		edit(&c)
		return &c
	}
	for _, c := range []struct {
		name   string
		stream *jetstream.StreamConfig // that is there
		edit   func(*nats.Config)
		want   []string
	}{
		{"well", &fit, nil, []string{"ok stream stream K8S", mayPublish, warnReplica, warnMemory}},
		{"not created yet", nil, nil, []string{"ok stream stream K8S"}},
		{
			"can lose events", with(func(c *jetstream.StreamConfig) {
				c.MaxMsgs, c.MaxMsgSize, c.MaxAge, c.Duplicates, c.Retention = 100, 5000, 30*time.Minute, time.Second, jetstream.InterestPolicy
			}), nil,
			[]string{
				"ok stream stream K8S", mayPublish,
				"warn stream stream K8S: when full (max_bytes -1, max_msgs 100), it removes its oldest messages -> set its discard policy to new, with which the bridge waits instead",
				"warn stream stream K8S: its retention is interest: it removes messages for which it has no consumer -> use retention: limits",
				"warn stream stream K8S: its duplicate_window is only 1s: a message that the server receives late can be stored twice -> use 2m0s or more",
				"warn stream stream K8S: it accepts messages of at most 5000 bytes, but objects can have up to 1572864 bytes: see the sink's oversize setting -> raise max_payload of the server, and max_msg_size of the stream",
				warnReplica, warnMemory,
				"warn stream stream K8S: it keeps messages for 30m0s: consumers that are away for longer miss them -> raise max_age",
				"warn stream stream K8S: its retention is interest: repeated events are only recognized within the duplicate window (duplicate_window 1s) -> use retention: limits, or a duplicate_window that is longer than the bridge is ever down",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.stream != nil {
				natsserver.CreateStream(t, js, *c.stream)
				defer func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), c.stream.Name) }()
			}
			b.edit = c.edit
			got := sinktest.Table(b.NewSink(t).(*nats.Sink).Check(t.Context()), b.Addr())
			if diff := cmp.Diff(slices.Concat(reached, c.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var names []string
			for name := range js.StreamNames(t.Context()).Name() {
				names = append(names, name)
			}
			if len(names) > 1 || len(names) == 1 && (c.stream == nil || names[0] != c.stream.Name) {
				t.Errorf("streams %q", names)
			}
		})
	}
}

// TestCheckPermissions: missing permissions are found before an event is lost, and Connect reports the same
// permissions.
func TestCheckPermissions(t *testing.T) {
	for _, c := range []struct {
		name    string
		publish server.SubjectPermission
		want    []string
		connect string // the error of Connect; empty: none
	}{
		{
			"all that the documentation names",
			server.SubjectPermission{Allow: []string{
				"k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S", "$JS.API.CONSUMER.*.K8S.>",
				"$JS.API.CONSUMER.MSG.NEXT.K8S.>",
			}},
			[]string{"ok stream stream K8S", mayPublish, warnReplica},
			"",
		},
		{
			"not to the subject",
			server.SubjectPermission{Allow: []string{"$JS.API.>"}},
			[]string{
				"ok stream stream K8S",
				`FAIL authorize subject k8s._._._._._: authorize: an empty message, which the stream would refuse, is not permitted: Permissions Violation for Publish to "k8s._._._._._"; on the server, allow user "bridge" to publish to k8s.*.*.*.*.*, or change nats.subject` +
					` -> on the server, allow user "bridge" to publish to k8s.*.*.*.*.*, or change nats.subject`,
				warnReplica,
			},
			"",
		},
		{
			"not to JetStream",
			server.SubjectPermission{Allow: []string{"k8s.>"}},
			[]string{
				`FAIL authorize stream K8S: authorize: stream K8S can't be looked up or created: Permissions Violation for Publish to "$JS.API.STREAM.INFO.K8S"; on the server, allow user "bridge" to publish to $JS.API.STREAM.INFO.K8S` +
					` -> on the server, allow user "bridge" to publish to $JS.API.STREAM.INFO.K8S`,
			},
			`authorize: stream K8S can't be looked up or created: Permissions Violation for Publish to "$JS.API.STREAM.INFO.K8S"; on the server, allow user "bridge" to publish to $JS.API.STREAM.INFO.K8S`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			password := writeFile(t, "password", []byte("secret"))
			b := secured(t, func(o *server.Options) {
				o.MaxPayload = 4 << 20
				o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
					Publish: &c.publish, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
				}}}
			})
			b.edit = func(cfg *nats.Config) {
				cfg.Auth, cfg.AckTimeout = natsconn.Auth{User: "bridge", PasswordFile: password}, 2*time.Minute
			}
			sink := b.NewSink(t).(*nats.Sink)
			defer closeSink(t, sink)
			err := sink.Connect(t.Context())
			if text := strings.TrimPrefix(errorText(err), "<nil>"); text != c.connect {
				t.Errorf("Connect: %v", err)
			}
			if !strings.Contains(c.name, "not to") && err == nil {
				send(t, sink, sinktest.Message("a", 1, 100))
			}
			got := sinktest.Table(b.NewSink(t).(*nats.Sink).Check(t.Context()), b.Addr())
			want := append([]string{"ok files nats", "ok connect ADDR", "ok protocol ADDR", warnBare}, c.want...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "<nil>"
	}
	return err.Error()
}

// TestCheckServers: a server that fails does not end the checks of the other servers. Certificates and credentials that
// expire soon are reported.
func TestCheckServers(t *testing.T) {
	p := newPKI(t, "authority")
	op := new(operator)
	b := secured(t, func(o *server.Options) { op.trust(o); p.server(true)(o); o.MaxPayload = 4 << 20 })
	b.edit = func(c *nats.Config) {
		c.URLs = []string{"nats://127.0.0.1:1", c.URLs[0], "tls://nats.invalid:4222"}
		c.TLS = p.client(t, certs.Options{Name: "bridge", Lifetime: 48 * time.Hour})
		c.Auth.CredentialsFile = writeFile(t, "bridge.creds", op.credentials(op.account, "bridge", 24*time.Hour))
	}
	findings := b.NewSink(t).(*nats.Sink).Check(t.Context())
	got := sinktest.Table(findings, b.Addr())
	for i, f := range findings {
		switch {
		case f.Step == sinks.StepTLS:
			got[i] = strings.Split(got[i], ":")[0]
			if !strings.Contains(f.Detail, `TLS 1.3; the server's certificate (signed by "CN=authority") is valid until`) ||
				!strings.Contains(f.Detail, `the client certificate ("CN=bridge") is valid until`) {
				t.Errorf("TLS: %s", f.Detail)
			}
		case f.Step == sinks.StepAuthenticate:
			got[i] = strings.Split(got[i], ":")[0] + " -> " + f.Remedy
			if !strings.Contains(f.Detail, ", valid for 2") {
				t.Errorf("credentials: %s", f.Detail)
			}
		}
	}
	want := []string{
		"ok files nats",
		"FAIL connect 127.0.0.1:1: 127.0.0.1:1: connect: nothing listens there (connection refused); start the broker, or correct the port in nats.url -> start the broker, or correct the port in nats.url",
		"ok connect ADDR",
		"ok protocol ADDR",
		"warn TLS ADDR",
		"warn authenticate ADDR -> renew the credentials",
		`FAIL resolve nats.invalid:4222: nats.invalid:4222: resolve: there is no host "nats.invalid"; correct the name in nats.url, or the DNS record -> correct the name in nats.url, or the DNS record`,
		"ok stream stream K8S",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCheckEmbedded: the check does not start an embedded server, but finds the problems that would prevent its start.
func TestCheckEmbedded(t *testing.T) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	dir := filepath.Join(t.TempDir(), "store")
	check := func(listen, dir string) []string {
		t.Helper()
		sink := nats.New(nats.Config{
			Embedded: &embedded.Config{
				Listen:   listen,
				StoreDir: dir,
			},
			Subject: subject,
			Stream:  nats.StreamConfig{Name: streamName, Create: true},
		})
		return sinktest.Table(sink.Check(t.Context()), l.Addr().String())
	}
	if diff := cmp.Diff(
		[]string{"ok files " + dir, "ok connect 127.0.0.1:0"},
		check("127.0.0.1:0", dir),
	); diff != "" {
		t.Errorf("well (-want +got):\n%s", diff)
	}
}

// TestPreviewShowsTheMessage: a preview has the headers of the message that is stored. Only the expected sequence is not
// known.
func TestPreviewShowsTheMessage(t *testing.T) {
	const expected = "Nats-Expected-Last-Subject-Sequence"
	for name, edit := range map[string]func(*nats.Config){
		"stream":        nil,
		"latest states": asMirror(time.Hour),
		"bucket":        func(c *nats.Config) { c.Bucket, c.Subject = "STATE", "{uid}"; asMirror(time.Hour)(c) },
	} {
		in := install(newBroker(t))
		in.edit = edit
		sink := in.start(t)
		structured := sinktest.Message("b", 1, 100)
		structured.Structured = true
		for n, m := range []*event.Message{sinktest.Message("a", 1, 100), structured, deletion("c", 2)} {
			p, err := sink.Preview(t.Context(), m, false)
			if err != nil {
				t.Fatal(err)
			}
			send(t, sink, m)
			stream, err := in.js(t).Stream(t.Context(), p.Stream)
			if err != nil {
				t.Fatal(err)
			}
			stored, err := stream.GetMsg(t.Context(), uint64(n+1))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for name := range stored.Header {
				want[name] = stored.Header.Get(name)
			}
			if _, expects := want[expected]; expects {
				want[expected] = "<sequence>"
			}
			for _, name := range []string{"Sequence", "Stream", "Subject", "Time-Stamp"} { // of the answer
				delete(want, "Nats-"+name)
			}
			got := map[string]string{}
			for _, h := range p.Headers {
				got[h.Name] = h.Value
			}
			if diff := cmp.Diff(want, got); diff != "" || p.Subject != stored.Subject {
				t.Errorf("%s, %s: (-stored +shown):\n%s", name, p.Subject, diff)
			}
			if (got["Nats-Msg-Id"] == "") != (name != "stream") || (got[expected] == "") != (name == "stream") {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}

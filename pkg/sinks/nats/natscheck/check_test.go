package natscheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// startServer starts a nats-server with JetStream in memory, unless edit turns it off, and returns its URL.
func startServer(t *testing.T, edit func(*server.Options)) string {
	t.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30, MaxPayload: 4 << 20,
	}
	if edit != nil {
		edit(opts)
	}
	_, stop := natsserver.Start(t, opts)
	t.Cleanup(stop)
	return natsserver.ClientURL(opts)
}

func createStream(t *testing.T, js jetstream.JetStream, edit func(*jetstream.StreamConfig)) *jetstream.StreamInfo {
	t.Helper()
	c := jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}, Storage: jetstream.MemoryStorage}
	if edit != nil {
		edit(&c)
	}
	stream, err := js.CreateStream(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo()
}

// at is the requirement of a sink on the server at url.
func at(url string, edit func(*Stream)) *Stream {
	s := required(edit)
	s.Access.URLs, s.Access.Timeout = []string{url}, 10*time.Second
	if !strings.Contains(s.Access.Auth.PasswordFile, "/") {
		s.Access.Auth = natsconn.Auth{}
	}
	return s
}

// Each state of the stream is a finding with a remedy. Nothing is created, and the identity is known as soon as the
// stream is.
func TestCheck(t *testing.T) {
	create := func(s *Stream) {
		s.Create, s.Config.Subjects, s.Config.Replicas, s.Config.Duplicates = true, []string{"k8s.>"}, 1, 2*time.Minute
	}
	url := startServer(t, nil)
	bare := startServer(t, func(o *server.Options) { o.JetStream = false })
	js := natsserver.Connect(t, url)
	const replica = "warn stream stream K8S: it has one replica: if the server loses its data, acknowledged messages are lost" +
		" -> use 3 replicas, in a cluster of at least 3 servers (num_replicas)"
	const memory = "warn stream stream K8S: its storage is memory: a restart of the server removes its messages" +
		" -> use storage: file"
	for _, c := range []struct {
		name        string
		url         string
		sink        func(*Stream)
		stream      func(*jetstream.StreamConfig) // nil if there is no stream
		want        []string                      // after connect and protocol; a prefix of each line
		destination string                        // a prefix
	}{
		{
			"missing", url, nil, nil,
			[]string{"FAIL stream stream K8S: stream: stream K8S does not exist; create it, correct nats.stream.name"},
			"",
		},
		{"created at the start", url, create, nil, []string{"ok stream stream K8S", replica}, "stream K8S, not created yet"},
		{
			"created with too many replicas", url, func(s *Stream) { create(s); s.Config.Replicas = 3 }, nil,
			[]string{"FAIL stream stream K8S: stream: cannot create stream K8S: 3 replicas are configured, but the server is not in a cluster; " +
				"set at most as many replicas as the cluster has servers with JetStream"},
			"stream K8S, not created yet",
		},
		{
			"subjects of another stream", url, create, func(c *jetstream.StreamConfig) { c.Name = "OTHER" },
			[]string{`FAIL stream stream K8S: stream: cannot create stream K8S: the subjects of stream OTHER overlap with "k8s.>"; ` +
				"set nats.stream.name to that stream"},
			"stream K8S, not created yet",
		},
		{"fit", url, nil, func(*jetstream.StreamConfig) {}, []string{"ok stream stream K8S", replica, memory}, "stream K8S, created 20"},
		{
			"unfit", url, nil, func(c *jetstream.StreamConfig) { c.NoAck = true },
			[]string{"FAIL stream stream K8S: stream: stream K8S: it sends no acknowledgements (no_ack): turn no_ack off"},
			"stream K8S, created 20",
		},
		{
			"no JetStream", bare, nil, nil,
			[]string{"FAIL stream stream K8S: stream: JetStream is not enabled for the server or this account"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.stream != nil {
				name := createStream(t, js, c.stream).Config.Name
				defer func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), name) }()
			}
			found, destination := at(c.url, c.sink).Check(t.Context())
			addr := strings.TrimPrefix(c.url, "nats://")
			want := append([]string{"ok connect ADDR", "ok protocol ADDR", "ok authorize subject k8s.*.*"}, c.want...)
			got := sinktest.Table(found, addr)
			if !slices.EqualFunc(want, got, func(prefix, line string) bool { return strings.HasPrefix(line, prefix) }) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
			}
			if !strings.HasPrefix(destination, c.destination) || (destination == "") != (c.destination == "") {
				t.Errorf("destination %q, want %q", destination, c.destination)
			}
			for name := range js.StreamNames(t.Context()).Name() {
				if c.stream == nil || name == "K8S" && c.name == "subjects of another stream" {
					t.Errorf("created stream %s", name)
				}
			}
		})
	}
}

// What cannot be read or reached ends the check at that step.
func TestCheckEndsEarly(t *testing.T) {
	unreadable := at("nats://127.0.0.1:1", func(s *Stream) { s.Access.Auth.PasswordFile = "/gone/password" })
	found, destination := unreadable.Check(t.Context())
	if len(found) != 1 || found[0].Step != sinks.StepFiles || destination != "" ||
		found[0].Remedy != "mount the file, or correct nats.passwordFile" {
		t.Errorf("%+v", found)
	}
	found, destination = at("nats://127.0.0.1:1", nil).Check(t.Context())
	if len(found) != 1 || found[0].Step != sinks.StepConnect || found[0].Err == nil || destination != "" {
		t.Errorf("%+v", found)
	}
}

// What the user may not do is found without doing it, and each failure names the subject to allow.
func TestCheckPermissions(t *testing.T) {
	const info = "$SYS.REQ.USER.INFO"
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	auth := natsconn.Auth{User: "bridge", PasswordFile: password}
	inbox := &server.SubjectPermission{Allow: []string{"_INBOX.>"}}
	allowed := func(subjects ...string) *server.SubjectPermission { return &server.SubjectPermission{Allow: subjects} }
	for _, c := range []struct {
		name      string
		publish   *server.SubjectPermission
		subscribe *server.SubjectPermission
		create    bool
		want      []string // step, warning and remedy of authorize
	}{
		{"all", allowed("k8s.>", "$JS.API.>", info), inbox, true, []string{"ok: "}},
		{"no creation, which is not required", allowed("k8s.>", "$JS.API.STREAM.INFO.K8S", info), inbox, false, []string{"ok: "}},
		{
			"no creation", allowed("k8s.>", "$JS.API.STREAM.INFO.K8S", info), inbox, true,
			[]string{`failed: on the server, allow user "bridge" to publish to $JS.API.STREAM.CREATE.K8S`},
		},
		{
			"not the subject", allowed("$JS.API.>", info), inbox, false,
			[]string{`failed: on the server, allow user "bridge" to publish to k8s.*.*, or change nats.subject`},
		},
		{
			"a part of the subject", allowed("k8s.prod.>", "$JS.API.>", info), inbox, false,
			[]string{"ok: ", `warns: on the server, allow user "bridge" to publish to k8s.*.*, or change nats.subject`},
		},
		{
			"a part is denied", &server.SubjectPermission{Deny: []string{"k8s.prod.secret"}}, inbox, false,
			[]string{"ok: ", `warns: on the server, allow user "bridge" to publish to k8s.*.*, or change nats.subject`},
		},
		{
			"the server does not report", allowed("$JS.API.>"), inbox, true, []string{"ok: "},
		},
		{
			"part of the inbox", allowed("k8s.>", "$JS.API.>", info), &server.SubjectPermission{
				Allow: []string{"_INBOX.>"}, Deny: []string{"_INBOX.x.*"},
			}, false, []string{`failed: on the server, allow user "bridge" to subscribe to _INBOX.>, or set nats.inboxPrefix`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := startServer(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
					Publish: c.publish, Subscribe: c.subscribe,
				}}}
			})
			s := at(url, func(s *Stream) { s.Access.Auth, s.Access.Timeout, s.Create = auth, 2*time.Minute, c.create })
			start := time.Now()
			found, _ := s.Check(t.Context())
			var got []string
			for _, f := range found {
				switch {
				case f.Step != sinks.StepAuthorize || f.Target != "subject k8s.*.*":
				case f.Err != nil:
					if !errors.Is(f.Err, natsgo.ErrPermissionViolation) || !sinks.IsRejected(f.Err) {
						t.Errorf("%v", f.Err)
					}
					got = append(got, "failed: "+f.Remedy)
				case f.Warn:
					got = append(got, "warns: "+f.Remedy)
				default:
					got = append(got, "ok: "+f.Remedy)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("a denial was waited for, %v", took)
			}
		})
	}
}

// The limit is the smaller one of the server and the stream.
func TestMaxMessage(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	ask := func(edit func(*Stream)) (int64, error) { return at(url, edit).MaxMessage(t.Context()) }
	if n, err := ask(nil); n != 4<<20 || !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("no stream: %d, %v", n, err)
	}
	if n, err := ask(func(s *Stream) { s.Create = true }); n != 4<<20 || err != nil {
		t.Errorf("to be created: %d, %v", n, err)
	}
	createStream(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 5000 })
	if n, err := ask(nil); n != 5000 || err != nil {
		t.Errorf("limited by the stream: %d, %v", n, err)
	}
	if n, err := ask(latest); n != 5000 || err == nil || !strings.Contains(err.Error(), "--max-msgs-per-subject=1") {
		t.Errorf("an unfit stream: %d, %v", n, err)
	}
	if _, err := at("nats://127.0.0.1:1", nil).MaxMessage(t.Context()); err == nil {
		t.Error("no server, no error")
	}
}

func TestIsAnswer(t *testing.T) {
	answer := func(code int, number server.ErrorIdentifier) error {
		return &jetstream.APIError{Code: code, ErrorCode: jetstream.ErrorCode(number)}
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("anything"), false},
		{context.DeadlineExceeded, false},
		{jetstream.ErrNoStreamResponse, false},
		{jetstream.ErrStreamNotFound, true},
		{answer(400, server.JSMaximumStreamsLimitErr), true},
		{answer(404, server.JSConsumerNotFoundErr), false},
		{answer(503, server.JSClusterNotAvailErr), false},
		{answer(503, server.JSClusterNotLeaderErr), false},
		{answer(503, server.JSStreamStoreFailedF), true}, // the stream is full
		{answer(503, server.JSInsufficientResourcesErr), true},
	} {
		if got := IsAnswer(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

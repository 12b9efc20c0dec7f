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
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
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

// Each state of the stream is a finding with a remedy. Nothing is created or stored, and the identity is known as soon as
// the stream is.
func TestCheck(t *testing.T) {
	create := func(s *Stream) { s.Create, s.Config.Subjects = true, []string{"k8s.>"} }
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
		{"created at the start", url, create, nil, []string{"ok stream stream K8S"}, ""},
		{"fit", url, nil, func(*jetstream.StreamConfig) {}, []string{
			"ok stream stream K8S", "ok authorize subject k8s._._", replica, memory,
		}, "stream K8S, created 20"},
		{
			"unfit", url, nil, func(c *jetstream.StreamConfig) { c.NoAck = true },
			[]string{"FAIL stream stream K8S: stream: stream K8S: it sends no acknowledgements (no_ack): turn no_ack off"},
			"",
		},
		{
			"no JetStream", bare, nil, nil,
			[]string{"FAIL stream stream K8S: stream: JetStream is not enabled for the server or this account"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.stream != nil {
				createStream(t, js, c.stream)
				defer func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), "K8S") }()
			}
			found, destination := at(c.url, c.sink).Check(t.Context())
			addr := strings.TrimPrefix(c.url, "nats://")
			want := append([]string{"ok connect ADDR", "ok protocol ADDR"}, c.want...)
			got := sinktest.Table(found, addr)
			if !slices.EqualFunc(want, got, func(prefix, line string) bool { return strings.HasPrefix(line, prefix) }) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
			}
			if !strings.HasPrefix(destination, c.destination) || (destination == "") != (c.destination == "") {
				t.Errorf("destination %q, want %q", destination, c.destination)
			}
			for info := range js.ListStreams(t.Context()).Info() {
				if c.stream == nil || info.State.Msgs+info.State.LastSeq > 0 || info.State.Consumers > 0 {
					t.Errorf("stream %s: %+v", info.Config.Name, info.State)
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

// What the user may not do is found without doing it, and each finding names the subject to allow.
func TestCheckPermissions(t *testing.T) {
	const api = "$JS.API."
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(s *Stream) { s.Config.Name, s.Create = "OTHER", true }
	for _, c := range []struct {
		denied string
		sink   func(*Stream)
		want   string // a prefix of the finding, whose remedy names the subject
	}{
		{"k8s.none", nil, ""},
		{"k8s.>", nil, "FAIL authorize subject k8s._._: authorize: an empty message, which the stream would refuse, is not permitted"},
		{api + "STREAM.INFO.K8S", nil, "FAIL authorize stream K8S: authorize: stream K8S can't be looked up or created"},
		{api + "STREAM.CREATE.K8S", nil, ""},
		{api + "STREAM.CREATE.OTHER", create, "FAIL authorize stream OTHER: authorize: the user lacks a permission"},
		{api + "CONSUMER.CREATE.K8S.*", nil, "warn stream stream K8S"},
		{api + "CONSUMER.INFO.K8S.*", nil, "warn stream stream K8S"},
		{api + "CONSUMER.MSG.NEXT.K8S.*", nil, "warn stream stream K8S"},
		{api + "CONSUMER.MSG.NEXT.K8S.*", func(s *Stream) { s.Letters = true }, ""},
		{api + "STREAM.MSG.GET.K8S", nil, ""},
		{api + "STREAM.MSG.GET.K8S", latest, "warn stream stream K8S"},
		{api + "CONSUMER.CREATE.K8S.*", latest, ""},
	} {
		t.Run(c.denied, func(t *testing.T) {
			url := startServer(t, func(o *server.Options) {
				o.NoAuthUser = "admin"
				may := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{c.denied}}}
				o.Users = []*server.User{{Username: "admin"}, {Username: "bridge", Password: "secret", Permissions: may}}
			})
			s := at(url, c.sink)
			createStream(t, natsserver.Connect(t, url), func(c *jetstream.StreamConfig) {
				c.MaxMsgsPerSubject, c.AllowMsgTTL = s.Config.MaxMsgsPerSubject, s.Config.AllowMsgTTL
			})
			s.Access.Auth, s.Access.Timeout = natsconn.Auth{User: "bridge", PasswordFile: password}, 2*time.Minute
			found, _ := s.Check(t.Context())
			var got []string
			for n, line := range sinktest.Table(found, strings.TrimPrefix(url, "nats://")) {
				if found[n].Err != nil || strings.Contains(line, "after a crash") {
					got = append(got, line)
				}
			}
			subject := strings.Replace(c.denied, "k8s.>", "k8s.*.*", 1)
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want) ||
				!strings.Contains(got[0], `-> on the server, allow user "bridge" to publish to `+subject)) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A user that may publish to a part of the subjects is asked for the part that the stream has.
func TestCheckPublishesToTheStream(t *testing.T) {
	url := startServer(t, nil)
	createStream(t, natsserver.Connect(t, url), func(c *jetstream.StreamConfig) { c.Subjects = []string{"k8s.prod.*"} })
	found, _ := at(url, nil).Check(t.Context())
	if !slices.ContainsFunc(found, func(f diagnose.Finding) bool {
		return f.Target == "subject k8s.prod._" && f.Detail == "may publish" && !f.Warn
	}) {
		t.Errorf("%+v", found)
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

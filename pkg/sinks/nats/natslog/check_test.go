package natslog_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// problems returns the failures of a check, and its warnings except those about encryption and a single replica.
func problems(findings []diagnose.Finding) (all []string) {
	for _, f := range findings {
		switch {
		case f.Err != nil:
			all = append(all, f.Step+": "+f.Err.Error()+" -> "+f.Remedy)
		case f.Warn && f.Step != sinks.StepAuthenticate && !strings.HasPrefix(f.Detail, "it has one replica"):
			all = append(all, f.Step+": "+f.Detail)
		}
	}
	return all
}

// A check finds what Fence would find, and creates nothing.
func TestCheck(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	for _, c := range []struct {
		name   string
		log    func(*natslog.Config)
		stream *jetstream.StreamConfig // nil if there is none
		want   string                  // part of the only problem
	}{
		{"created at the start", nil, nil, ""},
		{"missing", func(c *natslog.Config) { c.Stream.Create = false }, nil, "stream STATE does not exist"},
		{"fit", nil, &jetstream.StreamConfig{}, ""},
		{"loses records", nil, &jetstream.StreamConfig{MaxMsgsPerSubject: 1}, "remove max_msgs_per_subject"},
		{"another subject", nil, &jetstream.StreamConfig{Subjects: []string{"deltabridge.state.*"}}, "its subjects are"},
		{"unreachable", func(c *natslog.Config) { c.URLs = []string{"nats://127.0.0.1:1"} }, nil, "connection refused"},
		{"no files", func(c *natslog.Config) { c.Auth.CredentialsFile = "/missing" }, nil, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.stream != nil {
				c.stream.Name = streamName
				if c.stream.Subjects == nil {
					c.stream.Subjects = []string{"deltabridge.state.STATE"}
				}
				natsserver.CreateStream(t, js, *c.stream)
				defer func() { _ = js.DeleteStream(t.Context(), streamName) }()
			}
			findings := open(t, c.log, url).Check(t.Context())
			found := problems(findings)
			if (len(found) == 0) != (c.want == "") || c.want != "" && (len(found) != 1 || !strings.Contains(found[0], c.want)) {
				t.Errorf("problems %q, want %q", found, c.want)
			}
			single := slices.ContainsFunc(findings, func(f diagnose.Finding) bool {
				return f.Warn && strings.HasPrefix(f.Detail, "it has one replica")
			})
			if single != (c.name == "fit") {
				t.Errorf("a warning about a single replica: %t, in %v", single, findings)
			}
			_, err := js.Stream(t.Context(), streamName)
			if c.stream == nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("after the check, there is a stream: %v", err)
			}
		})
	}
}

// Each permission that is missing is a failure, with the subject to allow, except that to purge the stream. Nothing is
// stored.
func TestCheckPermissions(t *testing.T) {
	const api, subject = "$JS.API.", "deltabridge.state.STATE"
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{
		api + "STREAM.INFO.STATE", subject, api + "STREAM.MSG.GET.STATE", api + "CONSUMER.CREATE.STATE.*",
		api + "CONSUMER.MSG.NEXT.STATE.*",
	}
	for i, denied := range append(all, "") {
		may := &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: slices.Delete(slices.Clone(all), min(i, len(all)), min(i+1, len(all)))},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}
		url := startServer(t, func(o *server.Options) {
			o.NoAuthUser = "admin"
			o.Users = []*server.User{{Username: "admin"}, {Username: "bridge", Password: "secret", Permissions: may}}
		})
		js := natsserver.Connect(t, url)
		natsserver.CreateStream(t, js, jetstream.StreamConfig{
			Name: streamName, Subjects: []string{subject}, Discard: jetstream.DiscardNew,
		})
		found := problems(open(t, func(c *natslog.Config) {
			c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password}
		}, url).Check(t.Context()))
		if denied == "" && len(found) > 0 ||
			denied != "" && (len(found) != 1 || !strings.HasSuffix(found[0], "to publish to "+denied)) {
			t.Errorf("without %q: %q", denied, found)
		}
		if stream, err := js.Stream(t.Context(), streamName); err != nil || stream.CachedInfo().State.LastSeq > 0 {
			t.Errorf("without %q: %v, %v", denied, stream, err)
		}
	}
}

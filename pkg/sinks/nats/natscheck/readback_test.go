package natscheck

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// What keeps the sink from reading the stream back is a warning. The sinks' own tests show that it is one.
func TestReadBackWarnings(t *testing.T) {
	const user, api = "$SYS.REQ.USER.INFO", "$JS.API."
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := startServer(t, func(o *server.Options) {
		o.NoAuthUser = "admin"
		o.Users = []*server.User{{Username: "admin"}}
		for name, allowed := range map[string][]string{
			"all": {
				"k8s.>", api + "STREAM.*.K8S", api + "STREAM.MSG.GET.K8S", api + "CONSUMER.*.K8S.>",
				api + "CONSUMER.MSG.NEXT.K8S.>",
			},
			"some":   {"k8s.>", api + "STREAM.*.K8S", api + "CONSUMER.CREATE.K8S.>"},
			"part":   {"k8s.prod.*", api + ">"},
			"silent": {"k8s.>", api + "STREAM.INFO.K8S"},
		} {
			if name != "silent" {
				allowed = append(allowed, user)
			}
			o.Users = append(o.Users, &server.User{Username: name, Password: "secret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: allowed},
			}})
		}
	})
	js := natsserver.Connect(t, url)
	consumed := func(policy jetstream.RetentionPolicy) func(*jetstream.StreamConfig) {
		return func(c *jetstream.StreamConfig) { c.Retention = policy }
	}
	last := func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.AllowMsgTTL = 1, true }
	allow := func(name, list, effect string) []string {
		return []string{"the user may not publish to " + list + ": after a crash, " + effect +
			` -> on the server, allow user "` + name + `" to publish to ` + list}
	}
	const (
		window  = ": repeated events are only recognized within the duplicate window"
		instead = " -> use retention: limits, or a duplicate_window that is longer than the bridge is ever down"
	)
	for _, c := range []struct {
		name, user string
		sink       func(*Stream)
		stream     func(*jetstream.StreamConfig)
		consumers  bool
		want       []string
	}{
		{"everything", "all", nil, nil, true, nil},
		{"everything, latest states", "all", latest, last, true, nil},
		{"work queue", "all", nil, consumed(jetstream.WorkQueuePolicy), false, []string{
			"its retention is workqueue" + window + " (duplicate_window 2m0s)" + instead,
		}},
		{"interest", "all", nil, consumed(jetstream.InterestPolicy), false, []string{
			"its retention is interest: it removes messages for which it has no consumer -> use retention: limits",
			"its retention is interest" + window + " (duplicate_window 2m0s)" + instead,
		}},
		{"work queue of latest states", "all", latest, func(c *jetstream.StreamConfig) {
			last(c)
			c.Retention = jetstream.WorkQueuePolicy
		}, false, []string{
			"its retention is workqueue: after a crash, states that consumers have removed are sent again -> use retention: limits",
		}},
		{"no room for a consumer", "all", nil, func(c *jetstream.StreamConfig) { c.MaxConsumers = 1 }, true, []string{
			"it has as many consumers as it allows (max_consumers 1): after a crash, " + window[2:] + " -> raise max_consumers",
		}},
		{"room for a consumer", "all", nil, func(c *jetstream.StreamConfig) { c.MaxConsumers = 1 }, false, nil},
		{"some permissions", "some", nil, nil, false, allow(
			"some", "$JS.API.CONSUMER.INFO.K8S.*, $JS.API.CONSUMER.MSG.NEXT.K8S.*", window[2:])},
		{"some permissions, latest states", "some", latest, last, false, allow(
			"some", "$JS.API.STREAM.MSG.GET.K8S", "an older state can replace a newer one")},
		{"some permissions, dead letters", "some", func(s *Stream) { s.Letters = true }, nil, false, nil},
		{"part of the subjects", "part", nil, nil, false, allow(
			"part", "k8s._._", "events that the servers are still replicating can be stored twice")},
		{"the stream has the same part", "part", nil, func(c *jetstream.StreamConfig) {
			c.Subjects = []string{"k8s.prod.*"}
		}, false, []string{
			`its subjects ["k8s.prod.*"] include only a part of "k8s.*.*": other events are not delivered -> add "k8s.*.*" to its subjects`,
		}},
		{"the server does not report", "silent", nil, nil, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			createStream(t, js, c.stream)
			defer func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), "K8S") }()
			if c.consumers {
				durable := jetstream.ConsumerConfig{Durable: "only", AckPolicy: jetstream.AckExplicitPolicy}
				if _, err := js.CreateConsumer(t.Context(), "K8S", durable); err != nil {
					t.Fatal(err)
				}
			}
			found, _ := at(url, func(s *Stream) {
				s.Access.Auth = natsconn.Auth{User: c.user, PasswordFile: password}
				if c.sink != nil {
					c.sink(s)
				}
			}).Check(t.Context())
			var got []string
			for _, line := range sinktest.Table(found, strings.TrimPrefix(url, "nats://")) {
				text, ok := strings.CutPrefix(line, "warn stream stream K8S: ")
				if ok && !strings.Contains(text, "one replica") && !strings.Contains(text, "storage is memory") {
					got = append(got, text)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, found)
			}
		})
	}
}

// TestEndSubject: the stream has the subject, and the sink may publish to it if it may publish its events.
func TestEndSubject(t *testing.T) {
	for _, test := range []struct {
		wildcard string
		subjects []string
		want     string
	}{
		{"k8s.*.*.*", []string{"k8s.>"}, "k8s._._._"},
		{"k8s.*.*.*", []string{"other", "k8s.*.*.*"}, "k8s._._._"},
		{"k8s.*.*.*", []string{"k8s.pods.*.*"}, "k8s.pods._._"},
		{"k8s.*.*.*", []string{"k8s.configmaps.>"}, "k8s.configmaps._._"},
		{"k8s.*.*.*", []string{"other.>", "*.pods.default.>"}, "k8s.pods.default._"},
		{"k8s.*.things.>", []string{"k8s.apps.>"}, "k8s.apps.things._"},
		{"k8s.>", []string{">"}, "k8s._"},
		{"all", []string{"all"}, "all"},
	} {
		s := &Stream{Wildcard: test.wildcard}
		got := s.EndSubject(test.subjects)
		if got != test.want || !Covers(test.subjects, got) || !Covers([]string{test.wildcard}, got) {
			t.Errorf("%s in %q: %s, want %s", test.wildcard, test.subjects, got, test.want)
		}
	}
}

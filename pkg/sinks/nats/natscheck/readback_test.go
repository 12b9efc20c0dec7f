package natscheck

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// What keeps the sink from reading the stream back is a warning. The sinks' own tests show that it is one.
func TestReadBackWarnings(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	consumed := func(policy jetstream.RetentionPolicy) func(*jetstream.StreamConfig) {
		return func(c *jetstream.StreamConfig) { c.Retention = policy }
	}
	last := func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.AllowMsgTTL = 1, true }
	const (
		window  = ": repeated events are only recognized within the duplicate window"
		instead = " -> use retention: limits, or a duplicate_window that is longer than the bridge is ever down"
	)
	for _, c := range []struct {
		name      string
		sink      func(*Stream)
		stream    func(*jetstream.StreamConfig)
		consumers bool
		want      []string
	}{
		{"everything", nil, nil, true, nil},
		{"everything, latest states", latest, last, true, nil},
		{"work queue", nil, consumed(jetstream.WorkQueuePolicy), false, []string{
			"its retention is workqueue" + window + " (duplicate_window 2m0s)" + instead,
		}},
		{"interest", nil, consumed(jetstream.InterestPolicy), false, []string{
			"its retention is interest: it removes messages for which it has no consumer -> use retention: limits",
			"its retention is interest" + window + " (duplicate_window 2m0s)" + instead,
		}},
		{"work queue of latest states", latest, func(c *jetstream.StreamConfig) {
			last(c)
			c.Retention = jetstream.WorkQueuePolicy
		}, false, []string{
			"its retention is workqueue: after a crash, states that consumers have removed are sent again -> use retention: limits",
		}},
		{"work queue of dead letters", func(s *Stream) { s.Letters = true }, consumed(jetstream.WorkQueuePolicy), false, nil},
		{"no room for a consumer", nil, func(c *jetstream.StreamConfig) { c.MaxConsumers = 1 }, true, []string{
			"it has as many consumers as it allows (max_consumers 1): after a crash, " + window[2:] + " -> raise max_consumers",
		}},
		{"room for a consumer", nil, func(c *jetstream.StreamConfig) { c.MaxConsumers = 1 }, false, nil},
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
			found, _ := at(url, c.sink).Check(t.Context())
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

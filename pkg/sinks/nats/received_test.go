package nats_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// The message that the stream must refuse is never stored, and its failure prevents nothing else.
func TestEndOfTheStream(t *testing.T) {
	const own = "k8s.test.apps_example_com.things.default.a"
	existing := func(edit func(*jetstream.StreamConfig)) func(t *testing.T) *broker {
		return func(t *testing.T) *broker {
			b := newBroker(t)
			config := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}}
			edit(&config)
			if _, err := b.js(t).CreateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			b.edit = func(c *nats.Config) { c.Stream = nats.StreamConfig{Name: streamName} }
			return b
		}
	}
	for name, c := range map[string]struct {
		prepare  func(t *testing.T) *broker
		warnings int // for two processes
	}{
		"full": {existing(func(c *jetstream.StreamConfig) {
			c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew
		}), 0},
		"with TTLs": {existing(func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }), 0},
		"part of the subjects": {existing(func(c *jetstream.StreamConfig) {
			c.Subjects = []string{"other", "k8s.*.apps_example_com.things.*.*"}
		}), 0},
		"permission for one subject": {func(t *testing.T) *broker {
			b := secured(t, limited(own, "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S", "$JS.API.CONSUMER.*.K8S.>",
				"$JS.API.CONSUMER.*.*.K8S.>", "$JS.API.CONSUMER.MSG.NEXT.K8S.>"))
			b.edit = func(c *nats.Config) { asBridge(t, c) }
			return b
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			in := install(c.prepare(t))
			var logged warnings
			edit := in.edit
			in.edit = func(c *nats.Config) { edit(c); c.Logger = logged.logger() }
			send(t, in.start(t), sinktest.Message("a", 1, 100))
			expectStored(t, in.start(t), "1", sinktest.Message("a", 1, 100))
			expectWritten(t, in.broker, 1)
			if n := logged.count("still replicating"); n != c.warnings {
				t.Errorf("%d warnings, want %d: %s", n, c.warnings, strings.TrimSpace(logged.text.String()))
			}
		})
	}
}

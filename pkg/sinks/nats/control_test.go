package nats_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// A process that is killed, and its successor, which gets the same events: nothing is sent twice, neither objects nor
// control events, long after the streams have forgotten the ids. A bucket and a stream of last states have only objects.
func TestControlEventsApartAfterKill(t *testing.T) {
	for name, edit := range map[string]func(*nats.Config){
		"stream":        func(*nats.Config) {},
		"latest states": func(c *nats.Config) { c.Stream.LastPerSubject = true },
		"bucket": func(c *nats.Config) {
			c.Bucket, c.Subject, c.Stream = "STATE", "{resource}.{uid}", nats.StreamConfig{Create: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := install(newBroker(t))
			in.edit = func(c *nats.Config) {
				shortWindow(c)
				edit(c)
				apart(c)
			}
			if name == "bucket" {
				in.name = "KV_STATE"
			}
			for _, want := range []string{"0", "1"} {
				sink := in.start(t)
				for _, m := range []*event.Message{sinktest.Message("a", 1, 100), sinktest.Gap(), sinktest.Message("b", 2, 100)} {
					expectStored(t, sink, want, m)
				}
				if name == "stream" {
					outlastWindow(t, in.broker)
				}
			}
			var objects []string
			for _, m := range in.messages(t) {
				if id := m.Headers().Get("ce-id"); id != "" { // not a probe of outlastWindow
					objects = append(objects, id)
				}
			}
			if diff := cmp.Diff([]string{"uid-a.1001", "uid-b.1002"}, objects); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if records := in.ControlRecords(t); len(records) != 1 || records[0].Attributes["id"] != sinktest.Gap().ID {
				t.Errorf("control events: %v", records)
			}
		})
	}
}

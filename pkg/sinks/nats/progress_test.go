package nats_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

func progress(t *testing.T, version int) *event.Message {
	t.Helper()
	resource := sinktest.Gap().Resource
	m, err := (&event.Encoder{Cluster: "test"}).Encode(event.Event{
		Type: event.Progress, Time: time.Now(), Resource: resource, ProgressInfo: &event.ProgressInfo{
			Resource: event.GroupResource(resource), ResourceVersion: strconv.Itoa(version), AsOf: time.Now(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sent(t *testing.T, sink sinks.Sink, m *event.Message) error {
	t.Helper()
	results := make([]error, 1)
	sink.Send(t.Context(), []*event.Message{m}, results)
	return results[0]
}

// A stream that was created again does not have what a progress event covers. Nothing is written to it before the sink
// has named it.
func TestNoProgressToANewStream(t *testing.T) {
	in := install(newBroker(t))
	sink := in.start(t)
	if err := sent(t, sink, sinktest.Message("a", 1, 100)); err != nil {
		t.Fatal(err)
	}
	if err := sent(t, sink, progress(t, 1001)); err != nil {
		t.Fatal(err)
	}
	if n := len(in.messages(t)); n != 2 {
		t.Errorf("%d messages", n)
	}
	if err := in.js(t).DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	config := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}}
	natsserver.CreateStream(t, in.js(t), config)
	if err := sent(t, sink, progress(t, 1002)); err == nil || !strings.Contains(err.Error(), "created again") {
		t.Errorf("progress to a new stream: %v", err)
	}
	if n := len(in.messages(t)); n != 0 {
		t.Errorf("the new stream has %d messages", n)
	}
}

// A stream of last messages, and a bucket, have the last progress event of a resource, also one of the next process.
func TestProgressInLatestStates(t *testing.T) {
	for name, edit := range map[string]func(*nats.Config){
		"stream": func(c *nats.Config) { c.Stream.LastPerSubject = true },
		"bucket": func(c *nats.Config) { c.Bucket, c.Stream = "STATE", nats.StreamConfig{Create: true} },
	} {
		t.Run(name, func(t *testing.T) {
			in := install(newBroker(t))
			in.edit = edit
			if name == "bucket" {
				in.name = "KV_STATE"
			}
			for n := range 2 {
				sink := in.start(t)
				expectStored(t, sink, strconv.Itoa(n), sinktest.Message("a", 1, 100))
				for version := range 2 {
					if err := sent(t, sink, progress(t, 1001+2*n+version)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var versions []string
			for _, m := range in.messages(t) {
				if m.Headers().Get("deltabridge") == "" {
					versions = append(versions, m.Headers().Get("ce-resourceversion"))
				}
			}
			if len(versions) != 1 || versions[0] != "1004" {
				t.Errorf("progress events %v", versions)
			}
		})
	}
}

// A progress event that was not acknowledged does not keep the position in the stream from moving.
func TestProgressInDoubtMovesThePosition(t *testing.T) {
	in := install(newBroker(t))
	in.edit = func(c *nats.Config) { c.AckTimeout = 200 * time.Millisecond }
	sink := in.start(t)
	send(t, sink, sinktest.Message("a", 1, 100))
	in.Freeze()
	if err := sent(t, sink, progress(t, 1001)); err == nil {
		t.Error("acknowledged by a frozen server")
	}
	in.Thaw()
	sinkWorks(t, sink, sinktest.Message("a", 2, 100))
	for part, p := range sink.Positions(nil) {
		if p.Next < 3 {
			t.Errorf("the position in %s is %d", part, p.Next)
		}
	}
}

// sinkWorks sends a message until it is acknowledged.
func sinkWorks(t *testing.T, sink sinks.Sink, m *event.Message) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); sent(t, sink, m) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the sink does not work")
		}
	}
}

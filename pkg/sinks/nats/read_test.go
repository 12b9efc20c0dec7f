package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// reading is a sink's Read under way.
type reading struct {
	records chan *diagnose.Record
	ended   chan error
	stop    context.CancelFunc
}

func (b *broker) read(t *testing.T, o diagnose.ReadOptions) *reading {
	t.Helper()
	sink := b.NewSink(t).(*nats.Sink)
	ctx, cancel := context.WithCancel(t.Context())
	r := &reading{records: make(chan *diagnose.Record, 1000), ended: make(chan error, 1), stop: cancel}
	go func() { // ends with the context, at the latest with the test
		err := sink.Read(ctx, o, func(record *diagnose.Record) error { r.records <- record; return nil })
		r.ended <- errors.Join(err, sink.Close(context.WithoutCancel(ctx)))
		close(r.records)
	}()
	return r
}

// all waits for the end and gives the ids.
func (r *reading) all(t *testing.T) (ids []string) {
	t.Helper()
	for record := range r.records {
		ids = append(ids, record.Attributes["id"])
	}
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
	return ids
}

func (r *reading) next(t *testing.T) *diagnose.Record {
	t.Helper()
	select {
	case record, ok := <-r.records:
		if ok {
			return record
		}
		t.Fatalf("it has ended: %v", <-r.ended)
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing comes")
	}
	return nil
}

func putMessage(t *testing.T, js jetstream.JetStream, data string, headers ...string) {
	t.Helper()
	m := &natsgo.Msg{Subject: "k8s.x", Data: []byte(data), Header: natsgo.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		m.Header[name] = []string{value}
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	b := newBroker(t)
	js := b.js(t)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	if ids := b.read(t, diagnose.ReadOptions{}).all(t); len(ids) != 0 {
		t.Errorf("an empty stream: %v", ids)
	}
	putMessage(t, js, `{"a":1}`, "ce-id=1", "ce-changedby=caf%C3%A9%20%22x%22", "ce-time=t", "other=x")
	putMessage(
		t,
		js,
		`{"id":"2","initiallist":true,"data":{"a":2}}`,
		"content-type=application/cloudevents+json; charset=UTF-8",
	)
	putMessage(t, js, "anything")
	putMessage(t, js, "no JSON", "content-type=application/cloudevents+json")

	r := b.read(t, diagnose.ReadOptions{Follow: true})
	var got []string
	for range 4 {
		record := r.next(t)
		got = append(
			got,
			fmt.Sprint(
				record.Place,
				" ",
				record.Attributes,
				" ",
				string(record.Data),
				" ",
				record.Behind,
				" ",
				record.Foreign != nil,
			),
		)
	}
	if diff := cmp.Diff([]string{
		`k8s.x #1 map[changedby:caf` + "\u00e9" + ` "x" id:1 time:t] {"a":1} 3 false`,
		`k8s.x #2 map[id:2 initiallist:true] {"a":2} 2 false`,
		`k8s.x #3 map[] anything 1 true`,
		`k8s.x #4 map[]  0 true`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The connection breaks, and everything comes once all the same.
	b.Cut()
	for n := range 50 {
		putMessage(t, js, "{}", fmt.Sprint("ce-id=", 5+n))
	}
	for n := range 50 {
		if id := r.next(t).Attributes["id"]; id != fmt.Sprint(5+n) {
			t.Fatalf("%s comes in place of %d", id, 5+n)
		}
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Errorf("told to end: %v", err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		t.Errorf("a consumer is left: %s", name)
	}

	since := time.Now()
	putMessage(t, js, "{}", "ce-id=later")
	if diff := cmp.Diff([]string{"later"}, b.read(t, diagnose.ReadOptions{Since: since}).all(t)); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
	if ids := b.read(t, diagnose.ReadOptions{}).all(t); len(ids) != 55 {
		t.Errorf("%d messages", len(ids))
	}
	if ids := b.read(t, diagnose.ReadOptions{Since: time.Now()}).all(t); len(ids) != 0 {
		t.Errorf("what is newer than now: %v", ids)
	}
	stuck := errors.New("enough")
	sink := b.NewSink(t).(*nats.Sink)
	if err := sink.Read(
		t.Context(),
		diagnose.ReadOptions{},
		func(*diagnose.Record) error { return stuck },
	); !errors.Is(
		err,
		stuck,
	) {
		t.Errorf("the handler's error: %v", err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

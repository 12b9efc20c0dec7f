package natscheck

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

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// read reads from the server at url with a client of its own.
func read(
	ctx context.Context,
	t *testing.T,
	url string,
	o diagnose.ReadOptions,
	handle func(*diagnose.Record) error,
) error {
	t.Helper()
	s := at(url, nil)
	c := &natsconn.Client{Access: *s.Access, Prober: new(reach.Prober)}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		c.Close(closing)
	}()
	return s.Read(ctx, c, o, handle)
}

func publish(t *testing.T, js jetstream.JetStream, data string, headers ...string) {
	t.Helper()
	m := &natsgo.Msg{Subject: "k8s.a.b", Data: []byte(data), Header: natsgo.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		m.Header[name] = []string{value}
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// Messages of both modes come in order with what they say, and others with the reason why they are none. Nothing is
// left on the server.
func TestRead(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	var got []string
	collect := func(r *diagnose.Record) error {
		got = append(got, fmt.Sprintf("%s %v %s %d %v", r.Place, r.Attributes, r.Data, r.Behind, r.Foreign))
		return nil
	}
	err := read(t.Context(), t, url, diagnose.ReadOptions{}, collect)
	if !errors.Is(err, jetstream.ErrStreamNotFound) ||
		!strings.Contains(err.Error(), "create it, correct nats.stream.name") {
		t.Errorf("no stream: %v", err)
	}
	createStream(t, js, nil)
	if err := read(t.Context(), t, url, diagnose.ReadOptions{}, collect); err != nil || len(got) > 0 {
		t.Errorf("an empty stream: %v, %v", got, err)
	}
	publish(t, js, `{"a":1}`, "ce-id=1", "ce-changedby=caf%C3%A9%20%22x%22", "other=x")
	publish(t, js, `{"id":"2","data":{"a":2}}`, "content-type=application/cloudevents+json; charset=UTF-8")
	publish(t, js, "bad", "ce-id=100%")
	publish(t, js, "anything")
	if err := read(t.Context(), t, url, diagnose.ReadOptions{}, collect); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"k8s.a.b #1 map[changedby:caf\u00e9 \"x\" id:1] {\"a\":1} 3 <nil>",
		`k8s.a.b #2 map[id:2] {"a":2} 2 <nil>`,
		`k8s.a.b #3 map[id:100%] bad 1 <nil>`,
		`k8s.a.b #4 map[] anything 0 it has no header ce-id`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	enough := errors.New("enough")
	count := 0
	err = read(t.Context(), t, url, diagnose.ReadOptions{}, func(*diagnose.Record) error { count++; return enough })
	if !errors.Is(err, enough) || count != 1 {
		t.Errorf("%d records before %v", count, err)
	}
	stream, err := js.Stream(t.Context(), "K8S")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(t.Context()).Name() {
		t.Errorf("a consumer is left: %s", name)
	}
}

// With Follow, Read also returns messages that are published later, and the end of the context is not an error. With
// Since, older messages are left out.
func TestFollowSince(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	createStream(t, js, nil)
	publish(t, js, "{}", "ce-id=old")
	since := time.Now()
	publish(t, js, "{}", "ce-id=new")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ids []string
	err := read(ctx, t, url, diagnose.ReadOptions{Since: since, Follow: true}, func(r *diagnose.Record) error {
		if ids = append(ids, r.Attributes["id"]); len(ids) == 1 {
			publish(t, js, "{}", "ce-id=later")
		} else {
			cancel()
		}
		return nil
	})
	if diff := cmp.Diff([]string{"new", "later"}, ids); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

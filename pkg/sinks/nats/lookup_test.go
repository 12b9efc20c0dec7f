package nats_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// TestAnotherDomainRefuses: the leaf node has a stream with the same name and subjects, which refuses messages too. The
// sequence in its refusal is that of another object in the stream of the hub.
func TestAnotherDomainRefuses(t *testing.T) {
	hub, leaf := leafNode(t, limited(">"))
	hub.edit = func(cfg *nats.Config) {
		asBridge(t, cfg)
		cfg.URLs, cfg.Domain, cfg.Stream.LastPerSubject = []string{"nats://" + leaf.Addr()}, "hub", true
	}
	in := install(hub)
	ahead, behind := in.start(t), in.start(t)
	send(t, ahead, sinktest.Message("a", 9, 100), sinktest.Message("b", 1, 100))
	own := jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}, MaxMsgsPerSubject: 1}
	js := leaf.js(t)
	if _, err := js.CreateStream(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "k8s.test.apps_example_com.things.default.b", nil); err != nil {
		t.Fatal(err)
	}
	// The refusal of either stream can be the first.
	for err := errors.New("not sent"); err != nil; {
		if err = try(t, behind, sinktest.Message("b", 2, 100))[0]; errors.Is(err, sinks.ErrStored) {
			break
		}
	}
	expectHeld(t, hub, "updated uid-a.1009", "updated uid-b.1002")
}

// TestLookUpsAreSwallowed: requests for messages get no answer, because another client of the account takes them instead
// of an export. After some attempts, the last writer wins.
func TestLookUpsAreSwallowed(t *testing.T) {
	b := secured(t, configured(t, `
no_auth_user: admin
accounts {
  STREAMS {
    jetstream: enabled
    users: [{user: admin, password: admin}]
    exports: [{service: "$JS.API.>"}, {service: "k8s.>"}]
  }
  APP {
    users: [{user: bridge, password: secret}]
    imports: [
      {service: {account: STREAMS, subject: "$JS.API.STREAM.INFO.>"}, to: "JS.streams.API.STREAM.INFO.>"}
      {service: {account: STREAMS, subject: "$JS.API.STREAM.CREATE.>"}, to: "JS.streams.API.STREAM.CREATE.>"}
      {service: {account: STREAMS, subject: "k8s.>"}}
    ]
  }
}`))
	conn := natsserver.Connect(t, natsserver.ClientURL(b.opts), natsgo.UserInfo("bridge", "secret")).Conn()
	_, err := conn.SubscribeSync("JS.streams.API.STREAM.MSG.GET.>")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var logged warnings
	b.edit = func(c *nats.Config) {
		asBridge(t, c)
		asMirror(time.Hour)(c)
		c.APIPrefix, c.AckTimeout, c.Logger = "JS.streams.API", 50*time.Millisecond, logged.logger()
	}
	in := install(b)
	send(t, in.start(t), sinktest.Message("a", 1, 100))
	sink := in.start(t)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := try(t, sink, sinktest.Message("a", 2, 100))[0]
		if err == nil {
			break
		}
		if text := err.Error(); !strings.Contains(text, "STREAM.MSG.GET.K8S") || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if n := logged.count("an older state can replace a newer one"); n != 1 {
		t.Errorf("%d warnings: %s", n, logged.text.String())
	}
	expectHeld(t, b, "updated uid-a.1002")
}

// Without the permission to read the stream back, every last message is looked up, and nothing is written twice.
// Without the permission to look up messages either, the last writer of an object wins.
func TestMirrorWithoutPermissions(t *testing.T) {
	for _, c := range []struct {
		permission string
		stored     string
	}{
		{"$JS.API.STREAM.MSG.GET.K8S", "110"},
		{"unused", "000"},
	} {
		b := secured(t, limited("k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S", c.permission))
		var logged warnings
		b.edit = func(cfg *nats.Config) {
			asBridge(t, cfg)
			asMirror(time.Hour)(cfg)
			cfg.Logger = logged.logger()
		}
		in := install(b)
		send(t, in.start(t), sinktest.Message("a", 2, 100), sinktest.Message("b", 1, 100))
		after := in.start(t)
		expectStored(t, after, c.stored, sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100),
			sinktest.Message("a", 3, 100))
		want := map[string]int{"unused": 1}[c.permission]
		if n := logged.count("an older state can replace a newer one"); n != want {
			t.Errorf("%s: %d warnings: %s", c.permission, n, logged.text.String())
		}
	}
}

// The subject changes all the time, because somebody else writes to it. The message is tried again later.
func TestMirrorOthersKeepWriting(t *testing.T) {
	in := installMirror(t)
	sink := in.start(t)
	js := in.js(t)
	send(t, sink, sinktest.Message("a", 1, 100))
	subject := in.messages(t)[0].Subject()
	write := func(*natsgo.Msg) {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}
	write(nil)
	sub, err := js.Conn().Subscribe("$JS.API.STREAM.MSG.GET.>", write)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	// Whether the sink loses each of the races is a matter of luck.
	if err := try(t, sink, sinktest.Message("a", 2, 100))[0]; err != nil && sinks.IsPermanent(err) {
		t.Errorf("%v", err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Error(err)
	}
	for err := errors.New("not sent"); err != nil && !errors.Is(err, sinks.ErrStored); {
		err = try(t, sink, sinktest.Message("a", 2, 100))[0]
	}
}

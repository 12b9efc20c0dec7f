package natslog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// Each setting that a stream must not have is named, and nothing is changed. Each stream has its own name, and one stream
// is always there: the server may still be removing files, and the folder of the last stream, when it is asked for the
// next stream.
func TestExistingStream(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	if _, err := js.CreateStream(
		t.Context(),
		jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}},
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit func(*jetstream.StreamConfig)
		want string // part of the error; empty if the stream is fit
	}{
		"fit":         {func(*jetstream.StreamConfig) {}, ""},
		"limited":     {func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<20, jetstream.DiscardNew }, ""},
		"unlimited":   {func(c *jetstream.StreamConfig) { c.Discard, c.Duplicates = jetstream.DiscardOld, time.Hour }, ""},
		"subject":     {func(c *jetstream.StreamConfig) { c.Subjects = []string{"x"} }, `its subjects ["x"] include none of`},
		"subjects":    {func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "x") }, "its subjects are"},
		"wildcard":    {func(c *jetstream.StreamConfig) { c.Subjects = []string{"deltabridge.>"} }, "its subjects are"},
		"sources":     {func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "OTHER"}} }, "it has sources"},
		"interest":    {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, "use retention: limits"},
		"memory":      {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "use storage: file"},
		"async":       {func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, "use persist_mode: default"},
		"age":         {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "it removes messages after 1h0m0s: set max_age to 0"},
		"per subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 9 }, "remove max_msgs_per_subject"},
		"bytes":       {func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, "when full (max_bytes 1048576, max_msgs -1)"},
		"messages":    {func(c *jetstream.StreamConfig) { c.MaxMsgs = 9 }, "use discard: new"},
		"purge":       {func(c *jetstream.StreamConfig) { c.DenyPurge = true }, "turn deny_purge off"},
	} {
		t.Run(name, func(t *testing.T) {
			streamName := "STATE-" + strings.ReplaceAll(name, " ", "-")
			config := jetstream.StreamConfig{Name: streamName, Subjects: []string{"deltabridge.state." + streamName}}
			c.edit(&config)
			stream, err := js.CreateStream(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			before := stream.CachedInfo().Config
			l := open(t, func(c *natslog.Config) { c.Stream.Name = streamName }, url)
			_, err = l.Fence(t.Context())
			if _, waited := err, l.Wait(t.Context(), 2); (waited == nil) != (err == nil) {
				t.Errorf("Wait: %v", waited)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if (err != nil) != (c.want != "") || !strings.Contains(text, c.want) || err != nil && !sinks.IsRejected(err) {
				t.Errorf("%v, want %q", err, c.want)
			}
			after, err := stream.Info(t.Context())
			if err == nil {
				err = js.DeleteStream(t.Context(), streamName)
			}
			if err != nil || cmp.Diff(before, after.Config) != "" {
				t.Errorf("changed: %v", err)
			}
		})
	}
}

// A stream that is created meets the requirements, and is not changed when the configuration is.
func TestCreatedStream(t *testing.T) {
	url := startServer(t, nil)
	add(t, open(t, nil, url), fence(t, open(t, nil, url)), "1")
	if end := fence(t, open(t, func(c *natslog.Config) { c.Stream.Replicas = 3 }, url)); end != 2 {
		t.Errorf("end %d", end)
	}
	stream, err := natsserver.Connect(t, url).Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	if c.Replicas != 1 || c.Storage != jetstream.FileStorage || c.Discard != jetstream.DiscardNew || c.MaxAge != 0 ||
		c.Duplicates != 100*time.Millisecond || len(c.Subjects) != 1 || !c.AllowDirect {
		t.Errorf("%+v", c)
	}
}

func TestValidate(t *testing.T) {
	for text, want := range map[string]string{
		"url: nats://127.0.0.1:4222": "",
		"url: nats://a:1,nats://b:2\nstream: {name: A_b-1, create: true, replicas: 3}": "",
		"stream: {create: true}":                 "has no server",
		"{url: 'nats://a', user: x}":             "passwordFile",
		"{url: 'nats://a', stream: {name: a.b}}": "is not a valid name",
	} {
		cfg, at := strictyaml.Decode[natslog.Config]("", []byte(text))
		cfg.Validate(at)
		err := at.Err()
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	var none natslog.Config
	none.URLs = []string{"nats://127.0.0.1:1"}
	l := natslog.New(none)
	if l.MaxRecord() != 0 { // not known yet
		t.Errorf("%d bytes", l.MaxRecord())
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

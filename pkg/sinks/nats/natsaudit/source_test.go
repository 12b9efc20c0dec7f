package natsaudit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/pkg/audit/audittest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream is a stream that a test publishes to and reads.
type stream struct {
	audittest.Reader

	t    *testing.T
	opts *server.Options
	stop func()
	js   jetstream.JetStream
}

func newStream(t *testing.T) *stream {
	s := &stream{Reader: audittest.Reader{T: t}, t: t, opts: &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	}}
	_, s.stop = natsserver.Start(t, s.opts)
	t.Cleanup(func() { s.stop() })
	url := natsserver.ClientURL(s.opts)
	s.js = natsserver.Connect(t, url, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))
	return s
}

func (s *stream) create(change ...func(*jetstream.StreamConfig)) jetstream.Stream {
	s.t.Helper()
	c := jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"a.>"}}
	for _, f := range change {
		f(&c)
	}
	return natsserver.CreateStream(s.t, s.js, c)
}

func (s *stream) publish(values ...string) {
	s.t.Helper()
	for _, value := range values {
		m := &natsgo.Msg{Subject: "a.b", Data: []byte(value), Header: natsgo.Header{}}
		if kind, data, isTyped := strings.Cut(value, "="); isTyped {
			m.Data = []byte(data)
			m.Header.Set(typeHeader, kind)
		}
		if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stream) restart() *Source {
	cfg := Config{Stream: "AUDIT"}
	cfg.URLs = []string{natsserver.ClientURL(s.opts)}
	source := New(cfg)
	s.t.Cleanup(source.Close)
	return source
}

// All messages are read once, over restarts, and everything that is missing is a loss.
func TestStream(t *testing.T) {
	s := newStream(t)
	created := s.create()
	first := s.restart()
	s.Expect(first)
	s.publish(audittest.Event("a"), audittest.Event("b"))
	s.Expect(first, "a", "b")
	s.publish(
		"garbage",
		"dev.deltabridge.audit="+audittest.Event("d"),
		`dev.deltabridge.gap={"message":"upstream","events":2}`,
		`{"specversion":"1.0","type":"dev.deltabridge.audit","data":`+audittest.Event("e")+`}`,
	)
	second := s.restart()
	s.Expect(second, "1 lost: messages of stream AUDIT cannot be read: not valid JSON", "d", "2 lost: upstream", "e")
	s.Expect(s.restart())

	s.publish(audittest.Event("f"), audittest.Event("g"), audittest.Event("h"))
	if err := created.DeleteMsg(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	third := s.restart()
	s.Expect(third, "f", "1 lost: messages 8 to 8 of stream AUDIT were removed before they were read", "h")
	third.Close()
	s.publish(audittest.Event("i"), audittest.Event("j"))
	if err := created.Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
		t.Fatal(err)
	}
	fourth := s.restart()
	s.Expect(fourth, "0 lost: messages 10 to 10 of stream AUDIT were removed before they were read", "j")

	if err := s.js.DeleteStream(t.Context(), "AUDIT"); err != nil {
		t.Fatal(err)
	}
	s.create()
	s.publish(audittest.Event("k"))
	s.Expect(s.restart(), "0 lost: stream AUDIT was created again after it was read up to message 11", "k")
}

// If the stream is created again between the lookup of the stream and the creation of the consumer, the source does not
// continue in the middle of the new stream.
func TestCreatedAgainMeanwhile(t *testing.T) {
	s := newStream(t)
	s.create()
	s.publish(audittest.Event("a"), audittest.Event("b"))
	s.Expect(s.restart(), "a", "b")
	replaced := false
	forward := func(m *natsgo.Msg) {
		api := strings.TrimPrefix(m.Subject, "FORWARDED")
		if strings.HasPrefix(api, ".CONSUMER.CREATE") && !replaced {
			replaced = true
			if err := s.js.DeleteStream(t.Context(), "AUDIT"); err != nil {
				t.Error(err)
			}
			s.create()
			s.publish(audittest.Event("k"), audittest.Event("l"), audittest.Event("m"))
		}
		if err := s.js.Conn().PublishRequest("$JS.API"+api, m.Reply, m.Data); err != nil {
			t.Error(err)
		}
	}
	_, err := s.js.Conn().Subscribe("FORWARDED.>", forward)
	if err == nil {
		err = s.js.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	source := s.restart()
	source.client.APIPrefix = "FORWARDED"
	if batch, err := source.Read(t.Context(), s.At); !errors.Is(err, errReplaced) {
		t.Errorf("got a batch: %t, %v", batch != nil, err)
	}
	s.Expect(source, "0 lost: stream AUDIT was created again after it was read up to message 2", "k", "l", "m")
}

// If the stream is created again while the source reads it, nothing of the new stream is skipped.
func TestCreatedAgainWhileReading(t *testing.T) {
	s := newStream(t)
	s.create()
	source := s.restart()
	s.publish(audittest.Event("a"), audittest.Event("b"))
	s.Expect(source, "a", "b")
	if err := s.js.DeleteStream(t.Context(), "AUDIT"); err != nil {
		t.Fatal(err)
	}
	s.create()
	s.publish(audittest.Event("k"), audittest.Event("l"), audittest.Event("m"))
	var got []string
	for deadline := time.Now().Add(2 * time.Minute); len(got) < 4; {
		batch, err := source.Read(t.Context(), s.At)
		if err == nil { // otherwise the consumer is gone
			got, s.At = append(got, audittest.Items(t, batch)...), batch.Position
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	want := []string{"0 lost: stream AUDIT was created again after it was read up to message 2", "k", "l", "m"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	s.Expect(source)
}

// The source reads on when the server is back, and loses and repeats nothing.
func TestServerRestart(t *testing.T) {
	s := newStream(t)
	s.create(func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
	source := s.restart()
	s.publish(audittest.Event("a"))
	s.Expect(source, "a")
	s.stop()
	for s.js.Conn().IsConnected() { // what it publishes until it notices is lost
		<-time.After(5 * time.Millisecond)
	}
	_, s.stop = natsserver.Start(t, s.opts)
	for !s.js.Conn().IsConnected() {
		<-time.After(5 * time.Millisecond)
	}
	s.publish(audittest.Event("b"), audittest.Event("c"))
	for deadline := time.Now().Add(2 * time.Minute); ; { // the first calls may return errors, or nothing
		batch, err := source.Read(t.Context(), s.At)
		if err == nil && batch.Len() > 0 {
			n := batch.Len()
			s.At = batch.Position
			if n == 1 {
				s.Expect(source, "c")
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the restart: %v", err)
		}
	}
	s.Expect(source)
}

// A steady flow of messages does not hold up those that are there. A source that can be read says so, even if there is
// nothing.
func TestDelay(t *testing.T) {
	s := newStream(t)
	s.create(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage })
	source := s.restart()
	source.idle, source.linger = 200*time.Millisecond, 300*time.Millisecond // longer than pauses of the machine
	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for ctx.Err() == nil {
			_ = s.js.Conn().Publish("a.b", []byte(audittest.Event("a")))
			_ = s.js.Conn().Flush()
			<-time.After(time.Millisecond)
		}
	})
	for reads, tries := 0, 0; reads < 3; tries++ {
		begin := time.Now()
		batch, err := source.Read(t.Context(), s.At)
		if took := time.Since(begin); took > time.Minute || tries == 20 {
			t.Fatalf("got %v, and %d events after %v", err, batch.Len(), took)
		}
		if err == nil && batch.Len() > 0 { // or the machine stood still
			s.At = batch.Position
			reads++
		}
	}
	stop()
	publishing.Wait()
	for {
		batch, err := source.Read(t.Context(), s.At)
		if err != nil {
			t.Fatal(err)
		}
		if batch.Len() == 0 {
			break
		}
	}
}

// A stream that does not exist, or from which consumers remove messages, is an error.
func TestUnusable(t *testing.T) {
	s := newStream(t)
	source := s.restart()
	_, err := source.Read(t.Context(), nil)
	if err == nil || err.Error() != "stream: AUDIT does not exist; create it, or correct audit.nats.stream" {
		t.Errorf("got %v", err)
	}
	s.create(func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy })
	if _, err := source.Read(
		t.Context(),
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "consumers remove its messages") {
		t.Errorf("got %v", err)
	}
}

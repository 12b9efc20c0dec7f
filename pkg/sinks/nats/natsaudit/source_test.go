package natsaudit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/test/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream is a stream that a test publishes to and reads.
type stream struct {
	t    *testing.T
	opts *server.Options
	stop func()
	js   jetstream.JetStream
	at   json.RawMessage // the position of the last read
}

func newStream(t *testing.T) *stream {
	s := &stream{t: t, opts: &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	}}
	_, s.stop = natsserver.Start(t, s.opts)
	t.Cleanup(func() { s.stop() })
	conn, err := natsgo.Connect(
		natsserver.ClientURL(s.opts),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(10*time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if s.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stream) create(change ...func(*jetstream.StreamConfig)) jetstream.Stream {
	s.t.Helper()
	c := jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"a.>"}}
	for _, f := range change {
		f(&c)
	}
	created, err := s.js.CreateOrUpdateStream(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return created
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

func event(id string) string { return fmt.Sprintf(`{"auditID":%q,"stage":"Panic"}`, id) }

// expect reads what there is.
func (s *stream) expect(source *Source, want ...string) {
	s.t.Helper()
	var got []string
	for len(got) < max(len(want), 1) {
		ctx, cancel := context.WithTimeout(
			s.t.Context(),
			time.Duration(min(1, len(want)))*20*time.Second+200*time.Millisecond,
		)
		batch, err := source.Read(ctx, s.at)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
		s.at = batch.Position
		for raw, lost := range batch.All() {
			if lost != nil {
				got = append(got, fmt.Sprintf("%d lost: %s", lost.Events, lost.Message))
				continue
			}
			var e struct{ AuditID string }
			if err := json.Unmarshal(raw, &e); err != nil {
				s.t.Fatal(err)
			}
			got = append(got, e.AuditID)
		}
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// All messages are read once, over restarts, and everything that is missing is a loss.
func TestStream(t *testing.T) {
	s := newStream(t)
	created := s.create()
	first := s.restart()
	s.expect(first)
	s.publish(event("a"), event("b"))
	s.expect(first, "a", "b")
	s.publish("garbage", "dev.deltabridge.audit="+event("d"), `dev.deltabridge.gap={"message":"upstream","events":2}`,
		`{"specversion":"1.0","type":"dev.deltabridge.audit","data":`+event("e")+`}`)
	second := s.restart()
	s.expect(second, "1 lost: messages of stream AUDIT cannot be read: not valid JSON", "d", "2 lost: upstream", "e")
	s.expect(s.restart())

	s.publish(event("f"), event("g"), event("h"))
	if err := created.DeleteMsg(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	third := s.restart()
	s.expect(third, "f", "1 lost: messages 8 to 8 of stream AUDIT were removed before they were read", "h")
	third.Close()
	s.publish(event("i"), event("j"))
	if err := created.Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
		t.Fatal(err)
	}
	fourth := s.restart()
	s.expect(fourth, "0 lost: messages 10 to 10 of stream AUDIT were removed before they were read", "j")

	if err := s.js.DeleteStream(t.Context(), "AUDIT"); err != nil {
		t.Fatal(err)
	}
	s.create()
	s.publish(event("k"))
	s.expect(s.restart(), "0 lost: stream AUDIT was created again after it was read up to message 11", "k")
}

// The source reads on when the server is back, and loses and repeats nothing.
func TestServerRestart(t *testing.T) {
	s := newStream(t)
	s.create(func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
	source := s.restart()
	s.publish(event("a"))
	s.expect(source, "a")
	s.stop()
	_, s.stop = natsserver.Start(t, s.opts)
	for s.js.Conn().Status() != natsgo.CONNECTED {
		<-time.After(5 * time.Millisecond)
	}
	s.publish(event("b"), event("c"))
	for deadline := time.Now().Add(20 * time.Second); ; { // the first calls may return errors
		batch, err := source.Read(t.Context(), s.at)
		if err == nil {
			n := batch.Len()
			s.at = batch.Position
			if n == 1 {
				s.expect(source, "c")
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	s.expect(source)
}

// A stream that does not exist, or from which consumers remove messages, is an error.
func TestUnusable(t *testing.T) {
	s := newStream(t)
	source := s.restart()
	if _, err := source.Read(t.Context(), nil); !errors.Is(err, jetstream.ErrStreamNotFound) {
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

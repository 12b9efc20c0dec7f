package nats_test

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// warnings collects the warnings of a sink.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *warnings) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (w *warnings) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.text.String(), text)
}

// If nothing can be read back, the sink sends events without reading back, and logs one warning.
func TestNothingCanBeReadBack(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T) *broker{
		"no permission": func(t *testing.T) *broker {
			b := secured(t, limited("k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S"))
			b.edit = func(c *nats.Config) { asBridge(t, c); c.Stream.DuplicateWindow = 2 * time.Minute }
			return b
		},
		"a permission only to create the consumer": func(t *testing.T) *broker {
			b := secured(t, limited("k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S",
				"$JS.API.CONSUMER.CREATE.K8S.>"))
			b.edit = func(c *nats.Config) { asBridge(t, c) }
			return b
		},
		"a work queue": func(t *testing.T) *broker {
			b := newBroker(t)
			if _, err := b.js(t).CreateStream(t.Context(), jetstream.StreamConfig{
				Name: streamName, Subjects: []string{"k8s.>"}, Retention: jetstream.WorkQueuePolicy, MaxConsumers: 1,
			}); err != nil {
				t.Fatal(err)
			}
			return b
		},
		"interest": func(t *testing.T) *broker {
			b := newBroker(t)
			js := b.js(t)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: streamName, Subjects: []string{"k8s.>"}, Retention: jetstream.InterestPolicy,
			}); err != nil {
				t.Fatal(err)
			}
			only := jetstream.ConsumerConfig{Durable: "only"}
			if _, err := js.CreateConsumer(t.Context(), streamName, only); err != nil {
				t.Fatal(err)
			}
			return b
		},
		"no room for a consumer": func(t *testing.T) *broker {
			b := newBroker(t)
			js := b.js(t)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: streamName, Subjects: []string{"k8s.>"}, MaxConsumers: 1,
			}); err != nil {
				t.Fatal(err)
			}
			only := jetstream.ConsumerConfig{Durable: "only"}
			if _, err := js.CreateConsumer(t.Context(), streamName, only); err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := install(prepare(t))
			send(t, in.start(t), sinktest.Message("a", 1, 100))
			var logged warnings
			edit := in.edit
			in.edit = func(c *nats.Config) {
				if edit != nil {
					edit(c)
				}
				c.Logger = logged.logger()
			}
			after := in.start(t)
			if err := after.Connect(t.Context()); err != nil {
				t.Error(err)
			}
			expectStored(t, after, "0", sinktest.Message("a", 1, 100)) // the stream drops it
			if n := logged.count("only recognized within the duplicate window"); n != 1 {
				t.Errorf("%d warnings: %s", n, logged.text.String())
			}
			stream, err := in.js(t).Stream(t.Context(), streamName)
			if err != nil || stream.CachedInfo().State.Msgs != 1 {
				t.Errorf("%+v, %v", stream.CachedInfo().State, err)
			}
		})
	}
}

// What consumers have removed is recognized within the duplicate window. In a stream of latest states, it is sent again:
// its messages have no id.
func TestConsumersRemoveMessages(t *testing.T) {
	for _, latest := range []bool{false, true} {
		in := install(newBroker(t))
		config := jetstream.StreamConfig{
			Name: streamName, Subjects: []string{"k8s.>"}, Retention: jetstream.WorkQueuePolicy,
		}
		if latest {
			in.edit, config.MaxMsgsPerSubject = asMirror(0), 1
		}
		js := in.js(t)
		if _, err := js.CreateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		consumer, err := js.CreateConsumer(t.Context(), streamName, jetstream.ConsumerConfig{Durable: "worker"})
		if err != nil {
			t.Fatal(err)
		}
		a, b := sinktest.Message("a", 1, 100), sinktest.Message("b", 1, 100)
		send(t, in.start(t), a, b)
		m, err := consumer.Next()
		if err == nil {
			err = m.DoubleAck(t.Context()) // a
		}
		if err != nil {
			t.Fatal(err)
		}
		stored, written := "00", uint64(2) // the stream drops both
		if latest {
			stored, written = "01", 3
		}
		expectStored(t, in.start(t), stored, a, b)
		expectWritten(t, in.broker, written)
	}
}

// A process that follows another one has found nothing only if the stream ends at the stored position, in a stream of
// last messages too, and only as long as it sends nothing that the other one has left on disk: the next process can be
// brought that again.
func TestFoundNothing(t *testing.T) {
	for name, edit := range map[string]func(*nats.Config){"plain": shortWindow, "latest": asMirror(0)} {
		t.Run(name, func(t *testing.T) {
			in := install(newBroker(t))
			in.edit = edit
			first := in.start(t)
			send(t, first, sinktest.Message("a", 1, 100))
			if in.start(t).FoundNothing() {
				t.Error("there is a message after the stored position")
			}
			in.commit(first)
			second := in.start(t)
			send(t, second, sinktest.Message("a", 2, 100))
			if !second.FoundNothing() {
				t.Error("there is no message of another process after the stored position")
			}
			left := sinktest.Message("a", 3, 100)
			left.Origin.Left = true
			if send(t, second, left); second.FoundNothing() {
				t.Error("a message that was left on disk was sent")
			}
		})
	}
}

// The connection breaks again and again while 50,000 messages are read back.
func TestReadingBackIsInterrupted(t *testing.T) {
	t.Parallel()
	in := install(newBroker(t))
	in.edit = func(c *nats.Config) { shortWindow(c); c.AckTimeout = time.Minute } // it gives up after three of them
	send(t, in.start(t), sinktest.Message("first", 1, 100))
	const objects = 500
	publishRaw(t, in, objects, 100)
	outlastWindow(t, in.broker)
	after := in.process(t)
	failed := make(chan error, 1)
	go func() {
		var err error
		for range 20 {
			if err = after.Connect(t.Context()); err == nil {
				break
			}
		}
		failed <- err
	}()
	for range 3 {
		<-time.After(20 * time.Millisecond)
		in.Cut()
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	var batch []*event.Message
	for _, m := range sinktest.Messages(objects, 1) {
		m.ID, m.Identity.ResourceVersion = string(m.Identity.UID)+".1100", "1100"
		batch = append(batch, m)
	}
	expectStored(t, after, strings.Repeat("1", objects), batch...)
}

// relay forwards requests to the JetStream API with the prefix "relay", each as many times as times returns.
func (in *installation) relay(t *testing.T, times func(subject string) int) {
	t.Helper()
	conn := in.js(t).Conn()
	_, err := conn.Subscribe("relay.>", func(m *natsgo.Msg) {
		n := times(m.Subject)
		m.Subject = "$JS.API." + strings.TrimPrefix(m.Subject, "relay.")
		for range n {
			_ = conn.PublishMsg(m) // with the same reply subject; if it fails, the test does
		}
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	in.edit = func(c *nats.Config) { shortWindow(c); c.APIPrefix, c.AckTimeout = "relay", 2*time.Minute }
}

// The first request for messages is lost, as if the server did not know the consumer yet. It is repeated before the
// acknowledgement timeout.
func TestLostPullRequest(t *testing.T) {
	in, lost := install(newBroker(t)), atomic.Bool{}
	in.relay(t, func(subject string) int {
		if strings.Contains(subject, ".CONSUMER.MSG.NEXT.") && !lost.Swap(true) {
			return 0
		}
		return 1
	})
	send(t, in.start(t), sinktest.Message("a", 1, 100))
	begun := time.Now()
	expectStored(t, in.start(t), "1", sinktest.Message("a", 1, 100))
	if took := time.Since(begun); !lost.Load() || took > time.Minute {
		t.Errorf("a request was lost: %t; connecting took %v", lost.Load(), took)
	}
}

// More messages are requested than nats.go has room for, as after this process has stood still. Reading continues with
// those that it has dropped.
func TestMessagesAreDropped(t *testing.T) {
	in, more := install(newBroker(t)), atomic.Bool{}
	in.relay(t, func(subject string) int {
		if strings.Contains(subject, ".CONSUMER.MSG.NEXT.") && !more.Swap(true) {
			return 8
		}
		return 1
	})
	send(t, in.start(t), sinktest.Message("first", 1, 100))
	const objects, versions = 500, 10
	publishRaw(t, in, objects, versions)
	after := in.process(t)
	if err := after.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := sinktest.Messages(objects, versions)
	expectStored(t, after, strings.Repeat("1", len(all)), all...)
}

// publishRaw writes versions of objects as an earlier process would have.
func publishRaw(t testing.TB, in *installation, objects, versions int) {
	t.Helper()
	js, last := in.js(t), new(natsgo.Msg)
	for _, m := range sinktest.Messages(objects, versions) {
		h := natsgo.Header{"deltabridge": {in.writer}}
		for name, value := range m.Headers {
			h["ce-"+name] = []string{value}
		}
		last = &natsgo.Msg{Subject: "k8s.test.apps_example_com.things.default." + m.Identity.Name, Header: h}
		if err := js.Conn().PublishMsg(last); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.PublishMsg(t.Context(), last); err != nil { // when it is stored, so are the others
		t.Fatal(err)
	}
}

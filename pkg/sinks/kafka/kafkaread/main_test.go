package kafkaread_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkafka.Main(m)) }

// change makes a message about the object pods/default/<name>.
func change(typ event.Type, name string, version int) *event.Message {
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":%q,"uid":"u-%s",`+
		`"resourceVersion":"%d"}}`, name, name, version)
	obj, err := object.New([]byte(raw))
	if err != nil {
		panic(err)
	}
	m := &event.Message{
		Type: typ, Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Cluster: "test",
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Identity: obj.Identity, Data: obj.Raw,
		ID: fmt.Sprintf("u-%s.%d", name, version),
	}
	m.PartitionKey = "/pods/default/" + name
	return m
}

// padded gives the message a payload of about n bytes that no compression shrinks much.
func padded(m *event.Message, n int) *event.Message {
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	m.Data = fmt.Appendf(nil, `{"pad":%q}`, b.String())
	return m
}

func newSink(t testing.TB, cfg kafka.Config) *kafka.Sink {
	t.Helper()
	if cfg.Topic == "" {
		cfg.Topic = "events"
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connected returns a sink that is connected. A broker that has just started grants no producer ids for a moment.
func connected(t testing.TB, cfg kafka.Config) *kafka.Sink {
	t.Helper()
	s := newSink(t, cfg)
	retry(t, func() error { return s.Connect(t.Context()) })
	return s
}

// mustSend sends until every message is acknowledged, as a drain does.
func mustSend(t testing.TB, s *kafka.Sink, batch ...*event.Message) {
	t.Helper()
	retry(t, func() (failed error) {
		results := make([]error, len(batch))
		s.Send(t.Context(), batch, results)
		var rest []*event.Message
		for i, err := range results {
			if err != nil {
				rest, failed = append(rest, batch[i]), err
			}
		}
		batch = rest
		return failed
	})
}

func retry(t testing.TB, do func() error) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal(err)
		}
	}
}

func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "ce_id" {
			return string(h.Value)
		}
	}
	return ""
}

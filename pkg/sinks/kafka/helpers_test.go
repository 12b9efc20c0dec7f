package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// testTime is the time of all test messages: the brokers take records of the past.
var testTime = time.Date(2026, 3, 4, 5, 6, 7, 891_000_000, time.UTC)

// change makes a message about the object pods/default/<name>.
func change(typ event.Type, name string, version int) *event.Message {
	raw := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":%q,"uid":"u-%s","resourceVersion":"%d"}}`,
		name,
		name,
		version,
	)
	obj, err := object.New([]byte(raw))
	if err != nil {
		panic(err)
	}
	m := &event.Message{
		Type: typ, Time: testTime, Cluster: "test",
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Identity: obj.Identity, Data: obj.Raw,
		ID: fmt.Sprintf("u-%s.%d", name, version),
	}
	m.PartitionKey = "/pods/default/" + name
	return m
}

// padded gives the message a payload of about n bytes that no compression shrinks much.
func padded(m *event.Message, n int) *event.Message {
	c := *m
	var b bytes.Buffer
	b.WriteString(`{"pad":"`)
	for x := uint64(88172645463325252); b.Len() < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		fmt.Fprintf(&b, "%c%c%c%c", 'A'+x%26, 'a'+x>>8%26, '0'+x>>16%10, 'A'+x>>24%26)
	}
	b.WriteString(`"}`)
	c.Data = b.Bytes()
	return &c
}

func newSink(t testing.TB, cfg Config) *Sink {
	t.Helper()
	if cfg.Topic == "" {
		cfg.Topic = "events"
	}
	if cfg.Key == "" {
		cfg.Key = "/{resource}/{namespace}/{name}" // that of change
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(cfg)
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

func connected(t testing.TB, cfg Config) *Sink {
	t.Helper()
	s := newSink(t, cfg)
	var err error
	waitUntil(t, func() bool { // a broker that has just started, or stood still, has no producer ids to give for a moment
		err = s.Connect(t.Context())
		return err == nil || sinks.IsRejected(err)
	})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	return s
}

func newFake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func send(t testing.TB, s *Sink, batch ...*event.Message) []error {
	t.Helper()
	results := make([]error, len(batch))
	s.Send(t.Context(), batch, results)
	return results
}

// mustSend sends until every message is acknowledged, as a drain does.
func mustSend(t testing.TB, s *Sink, batch ...*event.Message) {
	t.Helper()
	waitUntil(t, func() bool {
		var rest []*event.Message
		for i, err := range send(t, s, batch...) {
			if sinks.IsPermanent(err) {
				t.Fatalf("%s: %v", batch[i].ID, err)
			}
			if err != nil && !errors.Is(err, sinks.ErrStored) {
				rest = append(rest, batch[i])
			}
		}
		batch = rest
		return len(batch) == 0
	})
}

// ids are the ce_id headers of the records of all partitions, a tombstone as "tombstone <key>".
func ids(partitions [][]*kgo.Record) (all []string) {
	for _, records := range partitions {
		for _, r := range records {
			if r.Value == nil {
				all = append(all, "tombstone "+string(r.Key))
				continue
			}
			all = append(all, header(r, "ce_id"))
		}
	}
	return all
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// describe shortens results to what matters.
func describe(results []error) []string {
	words := make([]string, len(results))
	for i, err := range results {
		switch {
		case err == nil:
			words[i] = "ok"
		case errors.Is(err, sinks.ErrStored):
			words[i] = "stored"
		case strings.HasPrefix(err.Error(), "not attempted"):
			words[i] = "not attempted"
		case strings.HasPrefix(err.Error(), "rejected: "):
			words[i] = "permanent"
		case strings.HasPrefix(err.Error(), "not acknowledged, but perhaps written"):
			words[i] = "maybe"
		default:
			words[i] = "retry"
		}
	}
	return words
}

// blamed is sinktest.Blamed, as a type of this package's own.
type blamed struct{ Step, Key, Text string }

func blame(t *testing.T, err error, addr string) blamed {
	t.Helper()
	return blamed(sinktest.Blame(t, err, addr))
}

// soonInOneRound calls f until it takes no longer than a limit. It fails the test if f always takes longer: the machine may
// do much else.
func soonInOneRound(t *testing.T, limit time.Duration, f func(round int)) {
	t.Helper()
	for round := 1; ; round++ {
		began := time.Now()
		f(round)
		took := time.Since(began)
		if took <= limit {
			return
		}
		if round == 5 {
			t.Errorf("it took %v, want %v at most in one of the rounds", took, limit)
			return
		}
	}
}

// running runs a drain until stop is called.
func running(t *testing.T, d *sinks.Drain) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		<-done //nolint:errcheck // canceled
	}
}

// pushAndWait pushes a message and waits until the drain has sent or parked it.
func pushAndWait(t *testing.T, queue *fifo.Queue[*event.Message], m *event.Message) {
	t.Helper()
	acked := queue.Stats().Acked
	if err := queue.Push(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return queue.Stats().Acked > acked })
}

package sinks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// scriptSink is a sink in the process. send decides about each message that may be attempted; the rules that
// every sink follows (a failure holds back its object's later messages) are applied here.
type scriptSink struct {
	connect func(ctx context.Context) error
	send    func(ctx context.Context, m *event.Message) error

	sends   int
	batches [][]string       // ids of each Send
	broker  []*event.Message // what the broker holds, in order
}

func (s *scriptSink) Connect(ctx context.Context) error {
	if s.connect == nil {
		return nil
	}
	return s.connect(ctx)
}

func (s *scriptSink) Part(*event.Message) string { return "" }

func (s *scriptSink) Close(context.Context) error { return nil }

func (s *scriptSink) Send(ctx context.Context, batch []*event.Message, results []error) {
	s.sends++
	var ids []string
	held := make(map[event.Key]bool)
	for i, m := range batch {
		ids = append(ids, m.ID)
		if held[m.Key()] {
			results[i] = sinks.ErrNotAttempted
			continue
		}
		err := error(nil)
		if s.send != nil {
			err = s.send(ctx, m)
		}
		results[i] = err
		if err == nil || sinks.IsMaybeWritten(err) && errors.Is(err, errWritten) {
			s.broker = append(s.broker, m)
		}
		held[m.Key()] = err != nil
	}
	s.batches = append(s.batches, ids)
}

var (
	errAway    = errors.New("connection refused")
	errWritten = errors.New("acknowledgement lost") // under MaybeWritten: it was written
)

func (s *scriptSink) ids() (ids []string) {
	for _, m := range s.broker {
		ids = append(ids, m.ID)
	}
	return ids
}

// message is version v of an object.
func message(object string, v int) *event.Message {
	m := &event.Message{
		Type: event.Updated, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		ID: fmt.Sprintf("%s.%d", object, v), Data: []byte(`{}`),
	}
	m.Identity.Namespace, m.Identity.Name = "default", object
	m.Identity.ResourceVersion = fmt.Sprint(v)
	return m
}

func control(t event.Type, id string) *event.Message {
	return &event.Message{
		Type: t, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		ID: id, Data: []byte(`{}`), GapInfo: &event.GapInfo{},
	}
}

func queueOf(t *testing.T, ms ...*event.Message) *fifo.Queue[*event.Message] {
	t.Helper()
	q := sinktest.Queue(t, 10_000)
	for _, m := range ms {
		if err := q.Push(t.Context(), m); err != nil {
			t.Fatalf("push: %v", err)
		}
	}
	return q
}

// seen records the calls of the hooks.
type seen struct {
	settled, refused []string
	retries          int
}

func (s *seen) hooks() sinks.Hooks {
	return sinks.Hooks{
		OnSettled:  func(m *event.Message, _ time.Time, _ time.Duration) { s.settled = append(s.settled, m.ID) },
		OnRetry:    func(*event.Message) { s.retries++ },
		OnRejected: func(m *event.Message, _ sinks.Rejection) { s.refused = append(s.refused, m.ID) },
	}
}

// logged is a logger into memory, without times.
func logged() (*slog.Logger, *bytes.Buffer) {
	var buf bytes.Buffer
	return slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), &buf
}

// sequences are the ids that the broker holds of each object, without direct repetitions: a message may come again,
// but only before a later one of its object.
func sequences(broker []*event.Message) map[string][]string {
	out := make(map[string][]string)
	for _, m := range broker {
		name := m.Identity.Name
		if ids := out[name]; len(ids) == 0 || ids[len(ids)-1] != m.ID {
			out[name] = append(ids, m.ID)
		}
	}
	return out
}

// toTest logs to the test's output.
func toTest(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

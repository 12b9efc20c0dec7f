package sinktest

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// Queue returns a queue for a Drain. Nothing runs the queue, so it writes no files, and pushes wait when it is full.
func Queue(t testing.TB, maxItems int) *fifo.Queue[*event.Message] {
	t.Helper()
	q, err := fifo.New(fifo.Options[*event.Message]{
		Path: filepath.Join(t.TempDir(), "queue"), MaxItems: maxItems, Size: (*event.Message).Size,
		Mark:      func(*event.Message) (source, position string) { return "", "" },
		OnSettled: func([]*event.Message) {},
		Receipt:   func(m *event.Message) *event.Message { return m },
		Since:     func(m *event.Message) time.Time { return m.Time },
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

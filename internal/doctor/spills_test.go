package doctor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
	"github.com/deltabridge/deltabridge/test/observe"
)

// What is on disk for a sink that is renamed or removed is named, with the number of events; an empty file of one is
// not.
func TestOrphanedEvents(t *testing.T) {
	dir := t.TempDir()
	file := func(sink string, events, delivered int) {
		q, err := fifo.New(fifo.Options[string]{
			Path: filepath.Join(
				dir,
				"spill-"+sink,
			),
			MaxItems:  100,
			Size:      func(string) int64 { return 1 },
			Logger:    slog.New(slog.DiscardHandler),
			Mark:      func(string) (source, position string) { return "", "" },
			OnSettled: func([]string) {},
			Receipt:   func(v string) string { return v },
			Since:     func(string) time.Time { return time.Now() },
			Encode:    func(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil },
			Decode:    func(data []byte, _ bool) (string, error) { return string(data), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range events {
			if err := q.Push(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if delivered > 0 {
			file := filepath.Join(dir, "spill-"+sink)
			if items, err := fifo.Peek(file); err != nil || items != int64(events) {
				t.Errorf("PeekSpill = %d, %v", items, err)
			}
		}
	}
	file("here", 3, 0)
	cfg := &config.Config{State: config.State{Path: dir}, Sinks: []config.Sink{{Name: "here"}, {Name: "new"}}}
	if _, err := OrphanedEvents(cfg); err != nil {
		t.Error(err)
	}
	file("gone", 5, 5)
	remedy, err := OrphanedEvents(cfg)
	if err == nil || !strings.Contains(err.Error(), "spill-gone contains 5 events for sink gone") {
		t.Errorf("OrphanedEvents = %v", err)
	}
	if !strings.Contains(remedy, "restore the sink") {
		t.Errorf("remedy %q", remedy)
	}
	if n := spillBytes(dir, "here"); n < 4096 {
		t.Errorf("the spill takes %d bytes", n)
	}
	if err := os.Rename(
		filepath.Join(dir, "spill-gone"),
		filepath.Join(dir, "spill-gone.damaged-20260101T000000Z"),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := OrphanedEvents(cfg); err != nil {
		t.Errorf("what was renamed: %v", err)
	}
	file("gone", 5, 5)
	for _, sink := range []string{"here", "left"} {
		store, err := parked.Open(parked.Options{Dir: dir, Sink: sink})
		if err != nil {
			t.Fatal(err)
		}
		m := &event.Message{Type: event.Added, ID: "1"}
		err = store.Park(
			[]parked.Parking{
				{Destination: "k8s.pods", Message: m},
				{Destination: "k8s.pods", Message: m},
				{Destination: "k8s.nodes", Message: m},
			},
		)
		if err := errors.Join(err, store.Close()); err != nil {
			t.Fatal(err)
		}
	}
	_, err = OrphanedEvents(cfg)
	if err == nil || !strings.Contains(err.Error(), "spill-gone contains 5 events for sink gone") ||
		!strings.Contains(
			err.Error(),
			"parked-left.db contains 3 events of k8s.pods, k8s.nodes for sink left",
		) || strings.Contains(err.Error(), "here.db") {
		t.Errorf("OrphanedEvents = %v", err)
	}
}

// Audit events without a sink for them are named. With one, they are delivered.
func TestOrphanedAuditEvents(t *testing.T) {
	cfg := config.Default()
	cfg.State.Path = t.TempDir()
	journal, err := audit.OpenJournal(audit.JournalOptions{
		Dir: filepath.Join(cfg.State.Path, "audit"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	one := []byte(`{"auditID":"a","stage":"Panic"}`)
	err = errors.Join(journal.Append(t.Context(), [][]byte{one, one, one}), journal.Ack(1), journal.Close())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OrphanedEvents(cfg); err == nil || !strings.Contains(err.Error(), "contains 2 audit events") {
		t.Errorf("without a sink: %v", err)
	}
	cfg.Audit, cfg.Sinks[0].Events = &config.Audit{}, config.EventsAudit
	if _, err := OrphanedEvents(cfg); err != nil {
		t.Errorf("with a sink: %v", err)
	}
	dir := filepath.Join(cfg.State.Path, "audit-state") // of the replicas
	observe.Must(t, os.Mkdir(dir, 0o700))
	store, err := parked.Open(parked.Options{Dir: dir, Sink: cfg.Sinks[0].Name})
	observe.Must(t, err)
	parking := []parked.Parking{{Destination: "k8s.pods", Message: &event.Message{Type: event.Audit, ID: "1"}}}
	observe.Must(t, errors.Join(store.Park(parking), store.Close()))
	if _, err := OrphanedEvents(cfg); err == nil || !strings.Contains(err.Error(), "audit-state") {
		t.Errorf("without a state log: %v", err)
	}
	cfg.State.Log = &config.StateLog{}
	if _, err := OrphanedEvents(cfg); err != nil {
		t.Errorf("with a state log: %v", err)
	}
}

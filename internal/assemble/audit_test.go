package assemble

import (
	"log/slog"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// The journal stays the same if audit events are first only joined with changes, and later sent too.
func TestOneAuditJournal(t *testing.T) {
	cfg := &config.Config{Audit: &config.Audit{}, Sinks: []config.Sink{{Name: "changes", Actor: true}}}
	cfg.State.Path = t.TempDir()
	var ids []string
	for range 2 {
		none := func(string) sinks.Positions { return nil }
		j, err := AuditJournal(cfg, none, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(t.Context(), [][]byte{[]byte(`{"auditID":"a","stage":"ResponseComplete"}`)}); err != nil {
			t.Error(err)
		}
		ids = append(ids, j.ID())
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		cfg.Sinks = append(cfg.Sinks, config.Sink{Name: "audit", Events: config.EventsAudit})
	}
	if ids[0] != ids[1] {
		t.Error("there are two journals")
	}
}

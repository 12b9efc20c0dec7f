package assemble

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// The journal stays the same if audit events are first only joined with changes, then sent too, and then only joined
// again. What has to be delivered is always in the same directory.
func TestOneAuditJournal(t *testing.T) {
	cfg := &config.Config{Audit: &config.Audit{}, Sinks: []config.Sink{{Name: "changes", Actor: true}}}
	cfg.State.Path = t.TempDir()
	audited := append(cfg.Sinks, config.Sink{Name: "audit", Events: config.EventsAudit})
	var ids []string
	for n, all := range [][]config.Sink{cfg.Sinks, audited, cfg.Sinks, audited} {
		cfg.Sinks = all
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
		if events, err := fifo.Peek(AuditDir(cfg)); err != nil || (events > 0) != (n%2 > 0) {
			t.Errorf("%d events have to be delivered; %v", events, err)
		}
	}
	if slices.Sort(ids); ids[0] != ids[3] {
		t.Error("there are several journals")
	}
}

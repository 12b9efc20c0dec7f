package assemble

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Audit events that are dropped at the start, because their sink was removed, are logged.
func TestAuditJournalOfRemovedSink(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, fmt.Sprintf("audit: {listen: 127.0.0.1:0, tokenFile: %q}\nstate: {path: %q}\n"+
		"sinks: [{name: stays, events: audit, stdout: {}}, {name: changes, stdout: {}}]", file, dir))
	journal, err := audit.OpenJournal(audit.JournalOptions{Dir: AuditDir(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := journal.Append(t.Context(), [][]byte{[]byte(`{"auditID":"a","stage":"Panic"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	id := journal.ID()
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	at := func(next int64) sinks.Positions {
		return sinks.Positions{"audit journal": {Journal: id, Next: next}}
	}
	var log bytes.Buffer
	journal, err = AuditJournal(cfg, map[string]sinks.Positions{
		"stays": at(1), "removed": at(2), "complete": at(4), "never-audit": {"0": {Next: 1}}, "changes": at(3),
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "are dropped") != 2 || !strings.Contains(text, "sink=removed events=2") ||
		!strings.Contains(text, "sink=changes events=1") {
		t.Error(text)
	}
}

package assemble

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// AuditDir returns the directory of the audit journal, if there are sinks that are sent audit events.
func AuditDir(cfg *config.Config) string { return filepath.Join(cfg.State.Path, "audit") }

// actorsDir returns the directory of the audit journal if it is only used to find out who made changes. What is left in
// it need not be delivered.
func actorsDir(cfg *config.Config) string { return filepath.Join(cfg.State.Path, "actors") }

// AuditJournal opens the journal of audit events. positions returns what the checkpoint has stored for a sink.
func AuditJournal(
	cfg *config.Config, positions func(sink string) sinks.Positions, log *slog.Logger,
) (*audit.Journal, error) {
	var known []audit.Position
	for _, sink := range append(cfg.AuditSinks(), engine.ActorsReader) {
		known = append(known, engine.AuditPositions(positions(sink))...)
	}
	dir := AuditDir(cfg)
	if len(cfg.AuditSinks()) == 0 {
		dir = actorsDir(cfg)
	} else if err := os.RemoveAll(actorsDir(cfg)); err != nil {
		return nil, fmt.Errorf("state.path: %w", err)
	}
	return audit.OpenJournal(audit.JournalOptions{
		Dir: dir, MaxBytes: cfg.Audit.MaxBytes, Known: known, Logger: log,
	})
}

// AuditServer returns the server that receives audit events, and stores them in the journal. It listens already.
func AuditServer(
	cfg *config.Audit, journal *audit.Journal, observer audit.Observer, log *slog.Logger,
) (*audit.Server, error) {
	handler, err := audit.NewHandler(audit.HandlerOptions{
		Journal: journal, Clients: cfg.ClientCAFile != "", Names: cfg.ClientNames, TokenFile: cfg.TokenFile,
		Logger: log, Observer: observer,
	})
	if err != nil {
		return nil, err
	}
	return audit.NewServer(audit.ServerOptions{
		Address: cfg.Listen, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, ClientCAFile: cfg.ClientCAFile,
		Handler: handler, Logger: log,
	})
}

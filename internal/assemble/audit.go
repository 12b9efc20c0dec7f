package assemble

import (
	"log/slog"
	"path/filepath"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// AuditDir returns the directory of the audit journal.
func AuditDir(cfg *config.Config) string { return filepath.Join(cfg.State.Path, "audit") }

// AuditJournal opens the journal of audit events. positions returns what the checkpoint has stored for a sink.
func AuditJournal(
	cfg *config.Config, positions func(sink string) sinks.Positions, log *slog.Logger,
) (*audit.Journal, error) {
	var known []audit.Position
	for _, sink := range append(cfg.AuditSinks(), engine.ActorsReader) {
		known = append(known, engine.AuditPositions(positions(sink))...)
	}
	return audit.OpenJournal(audit.JournalOptions{
		Dir: AuditDir(cfg), MaxBytes: cfg.Audit.MaxBytes, Known: known, Logger: log,
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
		Handler: handler, OnFailedHandshake: journal.Miss, Logger: log,
	})
}

package assemble

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/audit/logfile"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkaaudit"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsaudit"
)

// AuditDir returns the directory of the audit journal.
func AuditDir(cfg *config.Config) string { return filepath.Join(cfg.State.Path, "audit") }

// AuditJournal opens the journal of audit events. positions returns what the checkpoint has stored for a sink.
func AuditJournal(
	cfg *config.Config, positions func(sink string) sinks.Positions, log *slog.Logger,
) (*audit.Journal, error) {
	var known []audit.Position
	for _, sink := range cfg.AuditSinks() {
		known = append(known, engine.AuditPositions(positions(sink))...)
	}
	return audit.OpenJournal(audit.JournalOptions{
		Dir: AuditDir(cfg), MaxBytes: cfg.Audit.MaxBytes, Known: known, Logger: log,
	})
}

// AuditSources returns what has audit events already, or nothing if the bridge receives them.
func AuditSources(cfg *config.Audit, log *slog.Logger) (sources []audit.Source, err error) {
	for _, path := range cfg.Files {
		r := logfile.New(logfile.Options{Path: path, MaxLine: int(min(cfg.MaxBytes/2, audit.DefaultMaxBody)), Logger: log})
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("audit.files: %w", err)
		}
		sources = append(sources, r)
	}
	if cfg.Kafka != nil {
		own := *cfg.Kafka
		own.Logger = log
		topic, err := kafkaaudit.New(own)
		if err != nil {
			return nil, fmt.Errorf("audit.kafka: %w", err)
		}
		sources = append(sources, topic)
	}
	if cfg.NATS != nil {
		sources = append(sources, natsaudit.New(*cfg.NATS))
	}
	return sources, nil
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

package assemble

import (
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// AuditDir returns the directory of the audit journal.
func AuditDir(cfg *config.Config) string { return filepath.Join(cfg.State.Path, "audit") }

// AuditState returns the directory of what a replica knows about audit events, beside the journal.
func AuditState(cfg *config.Config) string { return filepath.Join(cfg.State.Path, "audit-state") }

// AuditLease returns the name of the Lease with the records about the audit journals of all replicas.
func AuditLease(lease config.Lease) string { return lease.Name + "-audit" }

// finishTimeout is the maximum time for what a replica that has delivered its audit events has in flight.
const finishTimeout = 2 * time.Second

// AuditOptions builds the parts of the engine that delivers the audit events of a replica, except its Store, Metrics
// and Journal.
func AuditOptions(cfg *config.Config, kube *rest.Config, version string, log *slog.Logger) (engine.Options, error) {
	o, err := Options(cfg, kube, version, log)
	o.Sinks = slices.DeleteFunc(o.Sinks, func(s engine.Sink) bool { return !s.Audit })
	o.AuditOnly, o.State, o.ShutdownTimeout = true, AuditState(cfg), min(finishTimeout, cfg.ShutdownTimeout)
	o.Scopes, o.Watch, o.ManagedFields, o.Enrichment = nil, "", false, engine.Enrichment{}
	return o, err
}

// AuditJournal opens the journal of audit events. positions are those that the checkpoint has stored, by sink. Events
// that only wait for removed sinks are dropped later, so this is logged.
func AuditJournal(
	cfg *config.Config, positions map[string]sinks.Positions, log *slog.Logger,
) (*audit.Journal, error) {
	var known []audit.Position
	for _, sink := range cfg.AuditSinks() {
		known = append(known, auditread.Known(positions[sink])...)
	}
	journal, err := audit.OpenJournal(audit.JournalOptions{
		Dir: AuditDir(cfg), MaxBytes: cfg.Audit.MaxBytes, Known: known, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	for _, sink := range slices.Sorted(maps.Keys(positions)) {
		at, last := auditread.Delivered(positions[sink]), journal.Status().Last
		if at.Journal == journal.ID() && at.Number < last && !slices.Contains(cfg.AuditSinks(), sink) {
			log.Error("audit events wait for a sink that is not sent audit events any more, and are dropped; to have them "+
				"delivered, stop the bridge and restore the sink", "sink", sink, "events", last-at.Number)
		}
	}
	return journal, nil
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
